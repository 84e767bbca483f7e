// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// newCounted starts containers on a CPU of AMD with assignable counters in each L3.
func newCounted(t *testing.T, counters, containers int) (*sim.FS, *Backend, []classes.Holder) {
	t.Helper()
	spec := sim.AMDSpec()
	spec.Counters = counters
	fsys, b, all := newMonitored(t, spec, monitorAll, "qos-gold", containers)
	b.MonitorAll(t.Context(), inClass("gold", all...))
	return fsys, b, all
}

// assignedTo returns the groups that have counters: "t" for one of all transfers in each cache, and "l" for one of local transfers.
func assignedTo(t *testing.T, fsys *sim.FS, groups ...string) (texts []string) {
	t.Helper()
	for _, group := range groups {
		text, err := fsys.ReadFile(sim.MountPoint + "/" + group + "/mbm_L3_assignments")
		must(t, err)
		has := ""
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "=_") {
				has += line[len("mbm_") : len("mbm_")+1]
			}
		}
		texts = append(texts, has)
	}
	return texts
}

func inGold(id string) string { return "qos-gold/mon_groups/qos-" + id }

// TestContainersWithoutABandwidthCounterAreReported has 6 counters in each L3. The root group keeps its two, and two classes have one each.
func TestContainersWithoutABandwidthCounterAreReported(t *testing.T) {
	fsys, b, containers := newCounted(t, 6, 4)
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
	want(2, 2)
	if diff := cmp.Diff(nil, containerUses(t, b, containers[2], "memory_bandwidth_bytes_total")); diff != "" {
		t.Errorf("a missing value is shown: %s", diff)
	}

	b.Unmonitor("c1") // the kernel frees the counters of a removed group
	b.MonitorAll(t.Context(), inClass("gold", containers[1:]...))
	want(2, 1)
	if diff := cmp.Diff([]string{"t", "t", ""}, assignedTo(t, fsys, inGold("c2"), inGold("c3"), inGold("c4"))); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// TestGroupsGetCountersAfterASwitchOfTheMode takes all counters away, as a write to info/L3_MON/mbm_assign_mode does. The next pass
// assigns them again, and a restarted backend changes nothing.
func TestGroupsGetCountersAfterASwitchOfTheMode(t *testing.T) {
	fsys, b, containers := newCounted(t, 9, 2)
	must(t, fsys.Mkdir(sim.MountPoint+"/theirs"))
	all := []string{"", "qos-gold", "qos-bronze", inGold("c1"), inGold("c2"), "theirs"}
	for _, group := range all {
		must(t, fsys.WriteFile(sim.MountPoint+"/"+group+"/mbm_L3_assignments", []byte("mbm_total_bytes:*=_\nmbm_local_bytes:*=_\n")))
	}
	must(t, fsys.WriteFile(sim.MountPoint+"/theirs/mbm_L3_assignments", []byte("mbm_local_bytes:*=e\n")))

	b.MonitorAll(t.Context(), inClass("gold", containers...))
	if diff := cmp.Diff([]string{"tl", "tl", "tl", "t", "t", "l"}, assignedTo(t, fsys, all...)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}

	restarted := newBackend(fsys, &several{})
	apply(t, restarted, monitorAll)
	fsys.Inject(nil)
	restarted.MonitorAll(t.Context(), inClass("gold", containers...))
	if fsys.Calls() != 0 || !monitoredCondition(t, restarted).Healthy {
		t.Errorf("after a restart: %d changes, want 0; %+v", fsys.Calls(), monitoredCondition(t, restarted))
	}
}

// TestTotalsGoOnWhenACounterIsAssignedAnew takes the counter of a container away, for a container of another class, and gives it back
// when that container has ended.
func TestTotalsGoOnWhenACounterIsAssignedAnew(t *testing.T) {
	fsys, b, gold := newCounted(t, 6, 2)
	bronze := classes.Holder{ID: "b1", Container: "main", PID: 11}
	fsys.AddTask(bronze.PID, "qos-bronze")
	const total = "memory_bandwidth_bytes_total"
	count := func(group, text string) { fsys.Count(group, 0, "mbm_total_bytes", text) }
	want := func(container any, class float64) {
		t.Helper()
		if diff := cmp.Diff(container, containerUses(t, b, gold[1], total)); diff != "" {
			t.Errorf("the container (-want +got):\n%s", diff)
		}
		reading, err := b.MeasureClass(t.Context(), "gold")
		must(t, err)
		if got := reading.Class[classes.Series{Measure: total, Part: "0"}]; got != class {
			t.Errorf("the class has transferred %v, want %v", got, class)
		}
	}

	want(0.0, 0)
	count("qos-gold", "5")
	count(inGold("c2"), "1000")
	b.MonitorAll(t.Context(), append(inClass("gold", gold...), inClass("bronze", bronze)...))
	want(nil, 1005)
	count("qos-gold", "7")
	want(nil, 1007)
	b.Unmonitor(bronze.ID)
	b.MonitorAll(t.Context(), inClass("gold", gold...))
	want(1000.0, 1007)
	count("qos-gold", "8")
	count(inGold("c2"), "3")
	want(1003.0, 1011)
}
