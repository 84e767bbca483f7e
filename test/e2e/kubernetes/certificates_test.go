// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the cluster's certificates.
type authority struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// newAuthority makes dir/ca.crt, and dir/sa.key and dir/sa.pub for tokens of service accounts.
func newAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	if err := a.issue("ca", pkix.Name{CommonName: "test"}); err != nil {
		return nil, err
	}
	key, err := a.writeKey("sa")
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return a, a.write("sa.pub", "PUBLIC KEY", public)
}

// issue makes dir/NAME.crt and dir/NAME.key. The first call makes the certificate of the authority itself.
func (a *authority) issue(name string, subject pkix.Name, addresses ...string) error {
	a.serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
	}

	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}

	key, err := a.writeKey(name)
	if err != nil {
		return err
	}

	parent, signer := a.cert, a.key
	if parent == nil {
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
		parent, signer = template, key
	}

	data, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}

	if a.cert == nil {
		a.key = key
		if a.cert, err = x509.ParseCertificate(data); err != nil {
			return err
		}
	}

	return a.write(name+".crt", "CERTIFICATE", data)
}

func (a *authority) writeKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	data, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, a.write(name+".key", "PRIVATE KEY", data)
}

func (a *authority) write(file, kind string, data []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
	return os.WriteFile(filepath.Join(a.dir, file), text, 0o600)
}
