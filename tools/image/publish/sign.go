// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// readKey returns the private key in a file of cosign, which is encrypted with a password.
func readKey(file string, password []byte) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w; make a key with cosign generate-key-pair", err)
	}

	block, _ := pem.Decode(data)
	if block == nil || block.Type != "ENCRYPTED SIGSTORE PRIVATE KEY" {
		return nil, fmt.Errorf("%s is not a private key of cosign; make one with cosign generate-key-pair", file)
	}

	decrypted, err := encrypted.Decrypt(block.Bytes, password)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; set COSIGN_PASSWORD to the password of the key", file, err)
	}

	key, err := x509.ParsePKCS8PrivateKey(decrypted)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}

	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New(file + " cannot sign")
	}

	return signer, nil
}

// writePublicKey writes the key that "cosign verify" needs.
func writePublicKey(file string, signer crypto.Signer) error {
	data, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: data}), 0o644)
}

// sign pushes the signature of an image or chart. Like cosign, it stores the signature as another image in the same
// repository: https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md
func sign(ctx context.Context, signer crypto.Signer, signed name.Digest) error {
	claim, err := json.Marshal(payload.Cosign{Image: signed})
	if err != nil {
		return err
	}

	signature, err := signatureOver(signer, claim)
	if err != nil {
		return err
	}

	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:       static.NewLayer(claim, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": signature},
	})
	if err != nil {
		return err
	}

	tag := signed.Context().Tag(strings.Replace(signed.DigestStr(), ":", "-", 1) + ".sig")
	return remote.Write(tag, image, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx))
}

// signFile writes the signature of a file to file.sig, as "cosign verify-blob" needs it.
func signFile(signer crypto.Signer, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	signature, err := signatureOver(signer, data)
	if err != nil {
		return err
	}
	return os.WriteFile(file+".sig", []byte(signature), 0o644)
}

// signatureOver returns the signature of data in base64.
func signatureOver(signer crypto.Signer, data []byte) (string, error) {
	hash := sha256.Sum256(data)
	signature, err := signer.Sign(rand.Reader, hash[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}
