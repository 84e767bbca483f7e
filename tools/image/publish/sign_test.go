// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// newKey returns a key, and the file that "cosign generate-key-pair" writes for it with the password "secret".
func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	data := must(x509.MarshalPKCS8PrivateKey(key))(t)
	data = must(encrypted.Encrypt(data, []byte("secret")))(t)
	file := filepath.Join(t.TempDir(), "cosign.key")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: data})))
	return key, file
}

func TestImageAndChartAreSignedWithTheKey(t *testing.T) {
	key, file := newKey(t)
	t.Setenv("COSIGN_PASSWORD", "secret")
	printed := must(publish(t, startRegistry(t), build(t), "-key", file))(t)

	for _, kind := range []string{"image", "chart"} {
		signed := published(t, printed, kind)
		claim, signature := signatureOf(t, signed)
		hash := sha256.Sum256(claim)
		if !ecdsa.VerifyASN1(&key.PublicKey, hash[:], signature) {
			t.Errorf("the signature of the %s was not made with the key", kind)
		}

		var claimed payload.Cosign
		if err := json.Unmarshal(claim, &claimed); err != nil || claimed.Image != signed {
			t.Errorf("the signature is for %s (%v), want %s", claimed.Image, err, signed)
		}
	}
}

// signatureOf reads a signature from the tag where cosign looks for it. It returns the signature and the claim that is
// signed.
func signatureOf(t *testing.T, signed name.Digest) (claim, signature []byte) {
	t.Helper()
	image := must(remote.Image(signed.Context().Tag(strings.Replace(signed.DigestStr(), ":", "-", 1) + ".sig")))(t)
	manifest, err := image.Manifest()
	if err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("the manifest is %+v (%v)", manifest, err)
	}

	signature = must(base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"]))(t)
	layer := must(image.LayerByDigest(manifest.Layers[0].Digest))(t)
	content := must(layer.Uncompressed())(t)
	defer content.Close()
	claim = must(io.ReadAll(content))(t)
	return claim, signature
}

func TestWhatCannotBePublishedIsRefusedWithARemedy(t *testing.T) {
	_, key := newKey(t)
	t.Setenv("COSIGN_PASSWORD", "wrong")
	programs, registry := build(t), startRegistry(t)
	if _, err := publish(t, registry, programs); err != nil {
		t.Fatal(err)
	}

	pem := filepath.Join(t.TempDir(), "key.pem")
	write(t, pem, "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n")
	for name, test := range map[string]struct {
		registry string
		more     []string
		want     string
	}{
		"a registry that does not run":          {"127.0.0.1:1", nil, "check the name, that the registry runs"},
		"a registry that does not run, checked": {"127.0.0.1:1", []string{"-check"}, "check the name, that the registry runs"},
		"no registry":                           {"", nil, "registry/name:tag"},
		"other content of the same version":     {registry, []string{"-revision", "def"}, "release another version"},
		"a wrong password":                      {registry, []string{"-key", key}, "set COSIGN_PASSWORD"},
		"a key that is not cosign's":            {registry, []string{"-key", pem}, "is not a private key of cosign"},
		"a key that is not there":               {registry, []string{"-key", "/none"}, "cosign generate-key-pair"},
		"a platform without programs":           {registry, []string{"-platforms", "linux/s390x"}, "build them first"},
		"another chart":                         {registry, []string{"-chart", "testdata"}, "Chart.yaml of the chart must have the line"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := publish(t, test.registry, programs, test.more...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}
