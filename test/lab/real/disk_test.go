// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

// TestASituationThatTheMachineCannotRunHasAReason prepares the situations of a measurement on machines that lack a file
// or a setting of the kernel. The arguments of `situations` do not matter here.
func TestASituationThatTheMachineCannotRunHasAReason(t *testing.T) {
	const enabled = "8:0 enable=1 ctrl=user\n"
	for name, test := range map[string]struct {
		version int
		cost    string // settings of iocost
		files   []string
		want    map[string]string // reasons by situation
	}{
		"cgroup v1": {1, "", nil, map[string]string{lab.ByWeights: "cgroup v1 has no iocost", lab.ByLatency: "cgroup v1 has no io.latency"}},
		"cgroup v2": {2, enabled, []string{"io.max", "io.weight", "io.latency"}, map[string]string{}},
		"cgroup v2, iocost for another disk": {
			2, "8:01 enable=1\n8:0 enable=0\n", []string{"io.max", "io.weight", "io.latency"},
			map[string]string{lab.ByWeights: "iocost is not enabled for sda (8:0)"},
		},
		"cgroup v2, without io.latency": {2, enabled, []string{"io.max", "io.weight"}, map[string]string{lab.ByLatency: "its kernel has no io.latency"}},
		"cgroup v2, without throttling": {2, enabled, []string{"io.weight", "io.latency"}, map[string]string{lab.Throttled: "its kernel has no io.max"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			e := &diskExperiment{
				disk: iocgroup.Disk{Device: iocgroup.Device{Major: 8}, Name: "sda"},
				root: root, group: filepath.Join(root, "qos-lab"), version: test.version,
			}
			for _, group := range []string{protected, noisy} {
				if err := os.MkdirAll(filepath.Join(e.group, group), 0o755); err != nil {
					t.Fatal(err)
				}
				for _, file := range test.files {
					if err := e.write(filepath.Join(group, file), ""); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := os.WriteFile(filepath.Join(root, "io.cost.qos"), []byte(test.cost), 0o600); err != nil {
				t.Fatal(err)
			}

			got := map[string]string{}
			for _, s := range e.situations(40, 2) {
				if s.reason != "" {
					got[s.name] = s.reason
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
