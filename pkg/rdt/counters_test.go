// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestContainersWithoutABandwidthCounterAreReported has a CPU of AMD with 8 assignable counters in each L3. The root group, two classes and
// one container have two each.
func TestContainersWithoutABandwidthCounterAreReported(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters = 8
	fsys, b, containers := newMonitored(t, spec, monitorAll, "qos-gold", 4)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	want := func(monitored, missing int) {
		t.Helper()
		condition := monitoredCondition(t, b)
		got := b.Status().Monitored["gold"]
		if condition.Healthy != (missing == 0) || got.Containers != monitored || got.Missing["NoFreeCounter"] != missing {
			t.Errorf("got %+v, %+v; want %d monitored, and %d without a counter", condition, got, monitored, missing)
		}
		if text := "the CPU has no free counter of memory bandwidth"; strings.Contains(condition.Message, text) != (missing > 0) {
			t.Errorf("the message is %q", condition.Message)
		}
	}
	// The root group and two classes have six of the eight counters.
	want(1, 3)

	b.Unmonitor("c1") // the kernel frees the counters of a removed group
	must(t, fsys.WriteFile(sim.MountPoint+"/qos-gold/mon_groups/qos-c2/mbm_L3_assignments", []byte("mbm_total_bytes:*=e\n")))
	_, err := b.Repair(t.Context())
	must(t, err)
	if diff := cmp.Diff(nil, containerUses(t, b, containers[2], "memory_bandwidth_bytes_total")); diff != "" {
		t.Errorf("a missing value is shown: %s", diff)
	}
	want(1, 2)
}
