// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import "testing"

func place(m *Machine, root string) Place {
	m.AddDisk("vda", 254, 0)
	m.AddPartition("vda", "vda1", 254, 1)
	m.AddDisk("vdb", 254, 16)
	m.AddCgroup("/test")
	return Place{Root: root, Dir: root + "/test", Disk: "254:0", Partition: "254:1", Other: "254:16", Name: "vda"}
}

func TestTheSimulationBehavesLikeTheKernel(t *testing.T) {
	unified, legacy := New(), NewLegacy()
	for name, differences := range map[string][]string{
		"cgroup v2": Differences(unified, place(unified, "/sys/fs/cgroup"), UnifiedOperations()),
		"cgroup v1": Differences(legacy, place(legacy, "/sys/fs/cgroup/blkio"), LegacyOperations()),
	} {
		for _, difference := range differences {
			t.Errorf("%s: %s", name, difference)
		}
	}
}
