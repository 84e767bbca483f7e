// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// tag is the build tag of released programs, and of "make test". Without it, gRPC imports golang.org/x/net/trace, which
// imports html/template.
const tag = "grpcnotrace"

// linked returns the packages that programs link.
func linked(t *testing.T, programs ...string) []string {
	t.Helper()
	list := child.Command(t, "go", slices.Concat([]string{"list", "-deps", "-tags", tag}, programs)...)
	list.Dir = repository
	packages, err := list.Output()
	must(t, err)
	return strings.Fields(string(packages))
}

// TestTheDRADriverLinksNoMoreThanItsLibraries keeps the driver small: three quarters of its resident memory are pages of its program file. See
// docs/decisions/libraries.md.
func TestTheDRADriverLinksNoMoreThanItsLibraries(t *testing.T) {
	const dra = "k8s.io/dynamic-resource-allocation/"
	allowed := linked(t, "./cmd/qos-kubelet-shim", dra+"kubeletplugin", dra+"deviceattribute")
	for _, name := range linked(t, "./cmd/qos-dra-driver") {
		if !slices.Contains(allowed, name) && !strings.HasPrefix(name, "github.com/qos-nri/qos-nri-plugin/") {
			t.Errorf("qos-dra-driver links %s, which neither the shim nor these libraries link; run go list -deps to find the package that imports it", name)
		}
	}
}

// TestTheLinkerCanRemoveUnusedMethods checks the packages of released programs. html/template calls methods by their names, so the linker
// keeps all methods of a program that links it, such as those of all clients of the Kubernetes API.
func TestTheLinkerCanRemoveUnusedMethods(t *testing.T) {
	if slices.Contains(linked(t, "./cmd/..."), "html/template") {
		t.Error("a program links html/template; run go list -deps to find the package that imports it")
	}

	// linked uses the tag, so the check above holds only for programs that are built with it.
	for _, file := range []string{"Makefile", "scripts/release.sh"} {
		builds := 0
		for line := range strings.Lines(read(t, file)) {
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
