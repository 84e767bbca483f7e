// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	platform := runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH
	built := &debug.BuildInfo{
		Main: debug.Module{Version: "v0.2.0"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
		},
	}

	for _, test := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"is the linker's", "v0.1.0", built, "qos-nri-plugin v0.1.0 (commit 0123456789ab, with changes, " + platform + ")"},
		{"is the module's", "", built, "qos-nri-plugin v0.2.0 (commit 0123456789ab, with changes, " + platform + ")"},
		{"is (devel) without either", "", nil, "qos-nri-plugin (devel) (" + platform + ")"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := describeBuild("qos-nri-plugin", test.linked, test.info); got != test.want {
				t.Errorf("version is %q, want %q", got, test.want)
			}
		})
	}
}
