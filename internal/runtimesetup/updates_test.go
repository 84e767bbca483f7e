// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"cmp"
	"slices"
	"strings"
	"testing"
)

// TestUpdatesAreRequestedOnlyFromRuntimesThatAreKnownNotToHang: containerd does not hang with NRI 0.12.1 or later, which
// containerd 2.4.0 has. Of CRI-O and other runtimes, no such version is known.
func TestUpdatesAreRequestedOnlyFromRuntimesThatAreKnownNotToHang(t *testing.T) {
	for _, test := range []struct {
		name, version, nri string
		updates            bool
	}{
		{"containerd", "v2.4.2", "v0.12.3", true},
		{"containerd", "v2.4.0", "", true},
		{"containerd", "v2.4.2-k3s1", "unknown", true},
		{"containerd", "2.5.0~ds1", "", true},
		{"containerd", "v2.3.9", "v0.12.1", true}, // a release with a newer NRI
		{"containerd", "v2.3.7", "v0.12.0", false},
		{"containerd", "v2.3.7-k3s1", "v0.12.0", false},
		{"containerd", "2.2.1~ds1", "v0.11.0", false},
		{"containerd", "1.7.27-0ubuntu1~24.04.1", "", false},
		{"containerd", "unknown", "(devel)", false},
		{"containerd", "", "", false},
		{"cri-o", "1.37.0", "v0.12.0", false},
		{"cri-o", "1.40.0", "v0.13.0", false},
		{"other", "9", "v0.13.0", false},
	} {
		if reason := NoUpdates(test.name, test.version, test.nri); (reason == "") != test.updates {
			t.Errorf("%s %q with NRI %q: the reason for no updates is %q, want updates: %t", test.name, test.version, test.nri, reason, test.updates)
		}
	}
}

func TestCheckReportsARuntimeThatCanHang(t *testing.T) {
	const hangs = " can hang when an NRI plugin requests an update of a container"
	for _, test := range []struct{ name, version, want string }{
		{"containerd", "v2.3.7-k3s1", "warning: containerd v2.3.7-k3s1" + hangs + "; use containerd 2.4 or later"},
		{"other", "9", "warning: it is not known whether other 9" + hangs},
		{"containerd", "v2.4.2", ""},
	} {
		got := inspect(t, host(t, fakeRuntime{name: test.name, version: test.version}, true, nil))
		found := slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, cmp.Or(test.want, hangs)) })
		if found != (test.want != "") {
			t.Errorf("%s %s: want %q in\n%s", test.name, test.version, test.want, strings.Join(got, "\n"))
		}
	}
}
