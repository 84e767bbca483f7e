// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// tag is the build tag of released programs, and of "make test".
const tag = "grpcnotrace"

// TestTheLinkerCanRemoveUnusedMethods checks the packages of released programs. html/template calls methods by their names, so the linker
// keeps all methods of a program that links it, such as those of all clients of the Kubernetes API.
func TestTheLinkerCanRemoveUnusedMethods(t *testing.T) {
	list := child.Command(t, "go", "list", "-deps", "-tags", tag, "./cmd/...")
	list.Dir = repository
	packages, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(strings.Fields(string(packages)), "html/template") {
		t.Error("a program links html/template; run go list -deps to find the package that imports it")
	}

	for _, file := range []string{"Makefile", "scripts/release.sh"} {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		builds := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, " build -trimpath ") {
				builds++
				if !strings.Contains(line, " -tags "+tag+" ") {
					t.Errorf("%s builds without -tags %s: %s", file, tag, line)
				}
			}
		}
		if builds == 0 {
			t.Errorf("%s builds nothing", file)
		}
	}
}
