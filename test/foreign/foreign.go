// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package foreign reads the example configuration files of goresctrl, in the version of go.mod. containerd and CRI-O accept the
// same files.
package foreign

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// RDT returns two RDT configurations of goresctrl: the sample, and the complete one in the documentation. The keys are the names of their
// files.
func RDT() (map[string][]byte, error) {
	sample, err := read("cmd/rdt/sample-conf.yaml")
	if err != nil {
		return nil, err
	}
	documented, err := example("doc/rdt.md", "options:\n  l2:\n    optional: true\n")
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"cmd/rdt/sample-conf.yaml": sample, "doc/rdt.md": documented}, nil
}

// BlockIO returns the configuration in goresctrl's documentation of block I/O.
func BlockIO() ([]byte, error) { return example("doc/blockio.md", "Classes:\n") }

// example returns the first fenced block of a document whose text begins with the parameter `beginning`.
func example(name, beginning string) ([]byte, error) {
	text, err := read(name)
	if err != nil {
		return nil, err
	}
	for i, block := range strings.Split(string(text), "```") {
		_, block, _ = strings.Cut(block, "\n") // the language
		if i%2 == 1 && strings.HasPrefix(block, beginning) {
			return []byte(block), nil
		}
	}
	return nil, fmt.Errorf("goresctrl's %s has no example that begins with %q", name, beginning)
}

func read(name string) ([]byte, error) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/intel/goresctrl").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("find goresctrl: %w", err)
	}
	return os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), name))
}
