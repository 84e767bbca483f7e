// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/tools/image/child"
)

// TestCosignVerifiesARelease runs the commands of docs/releases.md with a key that cosign has made. The test does
// not build cosign, because that takes many minutes.
func TestCosignVerifiesARelease(t *testing.T) {
	if _, err := exec.LookPath("cosign"); err != nil {
		t.Skip("cosign is not in the PATH")
	}
	t.Setenv("COSIGN_PASSWORD", "secret")
	dir, other := t.TempDir(), t.TempDir()
	command(t, dir, nil, "cosign", "generate-key-pair")
	command(t, other, nil, "cosign", "generate-key-pair")
	sums := filepath.Join(dir, "SHA256SUMS")
	write(t, sums, "0123  kubectl-qos_linux_amd64.tar.gz\n")
	printed := must(publish(t, startRegistry(t), build(t), "-key", filepath.Join(dir, "cosign.key"), "-sums", sums))(t)

	for name, args := range map[string][]string{
		"image":     {"verify", published(t, printed, "image").String()},
		"chart":     {"verify", published(t, printed, "chart").String()},
		"checksums": {"verify-blob", "--signature=" + sums + ".sig", sums},
	} {
		t.Run(name, func(t *testing.T) {
			if output, err := cosignVerify(t, dir, args); err != nil {
				t.Errorf("%v: %s", err, output)
			}
			if output, err := cosignVerify(t, other, args); err == nil {
				t.Errorf("cosign has accepted another key: %s", output)
			}
		})
	}
}

// cosignVerify verifies with the public key in a directory.
func cosignVerify(t *testing.T, keys string, args []string) (string, error) {
	t.Helper()
	args = append([]string{args[0], "--key=cosign.pub", "--insecure-ignore-tlog=true"}, args[1:]...)
	verify := child.Command(t, "cosign", args...)
	verify.Dir, verify.Env = keys, append(os.Environ(), "HOME="+keys)
	output, err := verify.CombinedOutput()
	return string(output), err
}
