// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package runtimesetup

import (
	"strings"
	"testing"
)

func TestCheckReportsPropertiesThatTheRuntimesNRICannotSet(t *testing.T) {
	property := Property{Name: "process.scheduler of a.example/p", NRI: "0.11"}
	for _, test := range []struct{ name, version, want string }{
		{"containerd", "v2.2.0", "problem: the NRI of containerd v2.2.0 cannot set process.scheduler of a.example/p, so containers of its classes are refused; " +
			"use containerd 2.2.1 or later, which has NRI 0.11"},
		{"containerd", "2.2.1", ""},
		{"containerd", "v2.4.2", ""},
		{"cri-o", "1.34.2", "use cri-o 1.35.0 or later, which has NRI 0.11"},
		{"cri-o", "1.37.0", ""},
		{"containerd", "unknown", "unknown: whether containerd unknown can set process.scheduler of a.example/p, which needs NRI 0.11"},
		{"other", "1.0", "unknown: whether other 1.0 can set process.scheduler of a.example/p, which needs NRI 0.11"},
	} {
		o := host(t, fakeRuntime{name: test.name, version: test.version}, true, nil)
		o.Properties = []Property{property}
		got := ""
		for _, line := range inspect(t, o) {
			if strings.Contains(line, property.Name) {
				got = line
			}
		}
		if !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s %s: got %q, want %q", test.name, test.version, got, test.want)
		}
	}
}
