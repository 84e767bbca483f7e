// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import "testing"

// TestOnlyCgroupV2KeepsTheIOOfARemovedCgroup reads the counters of the parent.
func TestOnlyCgroupV2KeepsTheIOOfARemovedCgroup(t *testing.T) {
	for _, test := range []struct {
		name, file, before, after string
		machine                   *Machine
	}{
		{"cgroup v2", "/sys/fs/cgroup/pod/io.stat", "8:0 rbytes=512 wbytes=1024 rios=1 wios=1 dbytes=0 dios=0\n",
			"8:0 rbytes=512 wbytes=1024 rios=1 wios=1 dbytes=0 dios=0\n", New()},
		{"cgroup v1", "/sys/fs/cgroup/blkio/pod/blkio.throttle.io_service_bytes_recursive",
			"8:0 Read 512\n8:0 Write 1024\n8:0 Total 1536\nTotal 1536\n", "Total 0\n", NewLegacy()},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := test.machine
			m.AddDisk("sda", 8, 0)
			m.AddCgroup("/pod/container")
			m.Transfer("/pod/container", "sda", 512, 1024)
			want := func(when, text string) {
				t.Helper()
				if data, err := m.ReadFile(test.file); string(data) != text || err != nil {
					t.Errorf("%s the removal: %q, error %v, want %q", when, data, err, text)
				}
			}

			want("before", test.before)
			for _, root := range m.Roots() {
				if err := m.Remove(root + "/pod/container"); err != nil {
					t.Fatal(err)
				}
			}

			want("after", test.after)
		})
	}
}
