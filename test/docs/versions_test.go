// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestTheCompatibilityPageHasTheVersionsThatTestsRun compares docs/compatibility.md with the versions that the tests on
// real components build.
func TestTheCompatibilityPageHasTheVersionsThatTestsRun(t *testing.T) {
	page := read(t, "docs/compatibility.md")
	built := regexp.MustCompile(`(?m)^(CONTAINERD|CRIO|RUNC|CRUN)(?:_\d)*_VERSION=v?(\S+)$`).FindAllStringSubmatch(read(t, "test/e2e/vm/env.sh"), -1)
	built = append(built, regexp.MustCompile(`(k8s\.io/kubernetes) v(\d+\.\d+)`).FindAllStringSubmatch(read(t, "test/e2e/kubernetes/programs/go.mod"), 1)...)
	built = append(built, regexp.MustCompile(`(KERNEL)_PACKAGE=linux-source-(\S+)`).FindAllStringSubmatch(read(t, "test/e2e/vm/env.sh"), 1)...)
	if len(built) != 8 {
		t.Errorf("found %q, want 8 versions", built)
	}

	for _, version := range built {
		if !regexp.MustCompile(`(?m)^\|.*\| ` + regexp.QuoteMeta(version[2]) + `[ |].*\| run`).MatchString(page) {
			t.Errorf("the table has no row that says that %s %s was run", version[1], version[2])
		}
	}
}

func TestTheMachinesOfTheCompatibilityPageAreThoseOfTestVM(t *testing.T) {
	page := read(t, "docs/compatibility.md")
	machines := read(t, "test/e2e/vm_test.go")
	for _, name := range regexp.MustCompile("`(?:TestVM/)?((?:amd|intel|crio|containerd)-[a-z0-9.-]+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(machines, `name: "`+name[1]+`"`) {
			t.Errorf("%s is not a machine of TestVM", name[1])
		}
	}
}
