// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// TestProgramsOfOtherSystemsLinkNoModuleForLinux searches the list of linked packages for modules that compile only on Linux. It
// does not build the program for other systems, because the test of "make release" in tools/image builds it.
func TestProgramsOfOtherSystemsLinkNoModuleForLinux(t *testing.T) {
	for _, system := range []string{"darwin", "windows"} {
		t.Run(system, func(t *testing.T) {
			list := child.Command(t, "go", "list", "-deps", ".")
			list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
			packages, err := list.Output()
			if err != nil {
				t.Fatal(err)
			}

			if !strings.Contains(string(packages), "internal/kubectlqos\n") {
				t.Fatalf("the list of linked packages lacks internal/kubectlqos: %s", packages)
			}

			for _, module := range []string{"github.com/containerd/cgroups", "github.com/intel/goresctrl", "github.com/moby/sys/mountinfo"} {
				if strings.Contains(string(packages), "\n"+module+"/") {
					t.Errorf("kubectl-qos links packages of %s", module)
				}
			}
		})
	}
}
