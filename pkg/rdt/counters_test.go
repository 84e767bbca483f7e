// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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

// TestContainersWithoutABandwidthCounterAreReported has 6 counters in each L3. The root group keeps its two, and two
// classes have one each, so 2 are left for the containers.
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
	for range 2 {
		if diff := cmp.Diff([]string{"t", "t", ""}, assignedTo(t, fsys, inGold("c2"), inGold("c3"), inGold("c4"))); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
		for _, id := range []string{"c2", "c3", "c4"} { // the oldest containers are the first ones again
			must(t, fsys.WriteFile(sim.MountPoint+"/"+inGold(id)+"/mbm_L3_assignments", []byte("mbm_total_bytes:*=_\n")))
		}
		b.MonitorAll(t.Context(), inClass("gold", containers[1:]...))
	}
}

// TestGroupsGetCountersAfterASwitchOfTheMode takes all counters away, as a write to info/L3_MON/mbm_assign_mode does. The next pass
// assigns them again, and a restarted backend changes nothing. The groups of the plugin use 8 of 9 counters, and the group of
// another program uses one.
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

// TestTotalsContinueWhenACounterIsAssignedAgain takes the counter of a container away, for a container of another
// class, and gives it back when that container has ended.
func TestTotalsContinueWhenACounterIsAssignedAgain(t *testing.T) {
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

	// After a restart, the first values of groups that exist do not count, but those of counters that begin do.
	b = newBackend(fsys, &several{})
	apply(t, b, monitorAll)
	b.MonitorAll(t.Context(), append(inClass("gold", gold...), inClass("bronze", bronze)...))
	b.Unmonitor(bronze.ID)
	b.MonitorAll(t.Context(), inClass("gold", gold...))
	count(inGold("c2"), "50")
	want(50.0, 50)
}

// TestContainersTakeTurnsWithACounter has one counter for three containers, because the root group and two classes use
// 4 of 5. Each container gets it in turn. Its values show for how many seconds it was counted.
func TestContainersTakeTurnsWithACounter(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters, spec.Domains = 5, []int{0}
	fsys, now := sim.New(spec), time.Unix(1000, 0)
	b := New(Options{FS: fsys, Threads: &several{}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	apply(t, b, twoPartitions+"monitoring: {containers: all, rotate: 10s}\n")
	var containers []classes.Holder
	for i, id := range []string{"c1", "c2", "c3"} {
		fsys.AddTask(i+1, "qos-gold")
		containers = append(containers, classes.Holder{ID: id, Container: "main", PID: i + 1})
	}
	if every := b.RotateEvery(); every != 10*time.Second {
		t.Fatalf("turns take %v", every)
	}

	for round, want := range [][]string{{"t", "", ""}, {"", "t", ""}, {"", "", "t"}, {"t", "", ""}} {
		b.MonitorAll(t.Context(), inClass("gold", containers...))
		if diff := cmp.Diff(want, assignedTo(t, fsys, inGold("c1"), inGold("c2"), inGold("c3"))); diff != "" {
			t.Errorf("turn %d: counters (-want +got):\n%s", round, diff)
		}
		if got := b.Status().Monitored["gold"].Missing["NoFreeCounter"]; got != max(0, 2-round) {
			t.Errorf("turn %d: %d containers have never had a counter", round, got)
		}
		now = now.Add(3 * time.Second)
		b.MonitorAll(t.Context(), inClass("gold", containers...)) // before the end of the turn
		if diff := cmp.Diff(want, assignedTo(t, fsys, inGold("c1"), inGold("c2"), inGold("c3"))); diff != "" {
			t.Errorf("turn %d: counters before its end (-want +got):\n%s", round, diff)
		}
		fsys.Count(inGold("c"+string(rune('1'+round%3))), 0, "mbm_total_bytes", "1000")
		now = now.Add(7 * time.Second)
	}

	for i, want := range [][]any{{2000.0, 20.0}, {1000.0, 10.0}, {1000.0, 10.0}} {
		got := []any{
			containerUses(t, b, containers[i], "memory_bandwidth_bytes_total"), containerUses(t, b, containers[i], "memory_bandwidth_observed_seconds_total"),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: bytes and seconds (-want +got):\n%s", containers[i].ID, diff)
		}
	}
}

// TestEachContainerGetsACounterOfEachCacheInTurn uses a group of another program that holds two counters in cache 1 and none in
// cache 0. So cache 0 has three counters for containers, and cache 1 has one, because the root group and two classes use 4 of 7.
func TestEachContainerGetsACounterOfEachCacheInTurn(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters, spec.Domains = 7, []int{0, 1}
	fsys, now := sim.New(spec), time.Unix(1000, 0)
	b := New(Options{FS: fsys, Threads: &several{}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	must(t, fsys.Mkdir(sim.MountPoint+"/theirs"))
	apply(t, b, twoPartitions+"monitoring: {containers: all, rotate: 10s}\n")
	must(t, fsys.WriteFile(sim.MountPoint+"/theirs/mbm_L3_assignments", []byte("mbm_total_bytes:0=_\nmbm_local_bytes:0=_\n")))
	var containers []classes.Holder
	for i, id := range []string{"c1", "c2", "c3"} {
		fsys.AddTask(i+1, "qos-gold")
		containers = append(containers, classes.Holder{ID: id, Container: "main", PID: i + 1})
	}

	turns := map[string]int{}
	for range 9 {
		b.MonitorAll(t.Context(), inClass("gold", containers...))
		for _, c := range containers {
			text, err := fsys.ReadFile(sim.MountPoint + "/" + inGold(c.ID) + "/mbm_L3_assignments")
			must(t, err)
			if total, _, _ := strings.Cut(string(text), "\n"); strings.Contains(total, "1=e") {
				turns[c.ID]++
			}
		}
		now = now.Add(10 * time.Second)
	}
	if diff := cmp.Diff(map[string]int{"c1": 3, "c2": 3, "c3": 3}, turns); diff != "" {
		t.Errorf("turns with a counter of cache 1 (-want +got):\n%s", diff)
	}
}

// TestTheObservedTimePausesWithoutAMonitoringGroup takes the RMID of a container for more classes, and gives it back later.
func TestTheObservedTimePausesWithoutAMonitoringGroup(t *testing.T) {
	spec := sim.AMDSpec()
	spec.L2, spec.TelemetryRMIDs, spec.Counters, spec.Domains = nil, 12, 32, []int{0}
	fsys, now := sim.New(spec), time.Unix(1000, 0)
	b := New(Options{FS: fsys, Threads: &several{}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	const monitored = "\nmonitoring: {containers: all, rotate: 10s}\n"
	apply(t, b, twoPartitions+monitored)
	fsys.AddTask(1, "qos-gold")
	c := classes.Holder{ID: "c1", Container: "main", PID: 1}
	b.MonitorAll(t.Context(), inClass("gold", c))

	now = now.Add(10 * time.Second)
	apply(t, b, classesNamed("c", 10)+monitored)
	b.MonitorAll(t.Context(), inClass("gold", c))
	now = now.Add(1000 * time.Second)
	apply(t, b, twoPartitions+monitored)
	must(t, b.Release(t.Context(), nobody))
	repair(t, b)
	b.MonitorAll(t.Context(), inClass("gold", c))
	if got := containerUses(t, b, c, "memory_bandwidth_observed_seconds_total"); got != 10.0 {
		t.Errorf("observed %v s, and a counter has counted for 10 s", got)
	}
}
