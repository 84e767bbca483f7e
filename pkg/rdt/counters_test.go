// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
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

// assignedTo returns which counters each of the groups has: "t" if it has a counter of all transfers in each cache, and "l" if it
// has one of local transfers in each cache.
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
	_, b, containers := newCounted(t, 6, 4)
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
}

// TestTheOldestContainersGetFreeCounters has 2 counters for the containers: one becomes free when c1 ends, and then another program
// frees both.
func TestTheOldestContainersGetFreeCounters(t *testing.T) {
	fsys, b, containers := newCounted(t, 6, 4)
	b.Unmonitor("c1")
	for range 2 {
		b.MonitorAll(t.Context(), inClass("gold", containers[1:]...))
		if diff := cmp.Diff([]string{"t", "t", ""}, assignedTo(t, fsys, inGold("c2"), inGold("c3"), inGold("c4"))); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
		for _, id := range []string{"c2", "c3", "c4"} {
			must(t, fsys.WriteFile(sim.MountPoint+"/"+inGold(id)+"/mbm_L3_assignments", []byte("mbm_total_bytes:*=_\n")))
		}
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
	fsys.Inject(nil) // counts the calls from 0
	restarted.MonitorAll(t.Context(), inClass("gold", containers...))
	if fsys.Calls() != 0 || !monitoredCondition(t, restarted).Healthy {
		t.Errorf("after a restart: %d changes, want 0; %+v", fsys.Calls(), monitoredCondition(t, restarted))
	}
}

// borrowed is a machine with two counters for containers. c1 and c2 of the class gold have them, and a container of bronze can take
// that of c2 for a time.
type borrowed struct {
	fs     *sim.FS
	b      *Backend
	gold   []classes.Holder
	bronze classes.Holder
}

func newBorrowed(t *testing.T) *borrowed {
	t.Helper()
	fs, b, gold := newCounted(t, 6, 2)
	m := &borrowed{fs, b, gold, classes.Holder{ID: "b1", Container: "main", PID: 11}}
	fs.AddTask(m.bronze.PID, "qos-bronze")
	return m
}

// take gives the counter of c2 to the container of bronze.
func (m *borrowed) take(t *testing.T) {
	t.Helper()
	m.b.MonitorAll(t.Context(), append(inClass("gold", m.gold...), inClass("bronze", m.bronze)...))
}

// giveBack ends the container of bronze, so c2 gets its counter again. The counter begins at 0.
func (m *borrowed) giveBack(t *testing.T) {
	t.Helper()
	m.b.Unmonitor(m.bronze.ID)
	m.b.MonitorAll(t.Context(), inClass("gold", m.gold...))
}

func (m *borrowed) count(group, bytes string) { m.fs.Count(group, 0, "mbm_total_bytes", bytes) }

// want compares the total of c2, which is nil without a counter, and that of its class.
func (m *borrowed) want(t *testing.T, container any, class float64) {
	t.Helper()
	if diff := cmp.Diff(container, containerUses(t, m.b, m.gold[1], "memory_bandwidth_bytes_total")); diff != "" {
		t.Errorf("the container (-want +got):\n%s", diff)
	}
	if got := transferred(t, m.b, "gold"); got != class {
		t.Errorf("the class has transferred %v, want %v", got, class)
	}
}

// TestTotalsContinueWhenACounterIsAssignedAgain takes the counter of c2 away, and gives it back. The total of the class is what its own
// group has counted, plus the total of c2.
func TestTotalsContinueWhenACounterIsAssignedAgain(t *testing.T) {
	m := newBorrowed(t)
	m.want(t, 0.0, 0)
	m.count("qos-gold", "5")
	m.count(inGold("c2"), "1000")
	m.take(t)
	m.want(t, nil, 1005) // 5 + 1000
	m.count("qos-gold", "7")
	m.want(t, nil, 1007)
	m.giveBack(t)
	m.want(t, 1000.0, 1007)
	m.count("qos-gold", "8")
	m.count(inGold("c2"), "3")
	m.want(t, 1003.0, 1011) // 8 + 1003
}

// TestAfterARestartTheFirstValueOfACounterCountsOnlyIfTheCounterIsNew restarts the plugin. The counter of the class had 8 bytes before,
// so they are not added to a total. The counter of c2 is assigned again after the restart and begins at 0, so its 50 bytes are added to the
// totals of c2 and of the class.
func TestAfterARestartTheFirstValueOfACounterCountsOnlyIfTheCounterIsNew(t *testing.T) {
	m := newBorrowed(t)
	m.count("qos-gold", "8")
	m.b = newBackend(m.fs, &several{}) // the restart
	apply(t, m.b, monitorAll)
	m.take(t)
	m.giveBack(t)
	m.count(inGold("c2"), "50")
	m.want(t, 50.0, 50)
}

// turns simulates containers c1 to c3 of the class gold that have counters in turn, for 10 s each.
type turns struct {
	fs         *sim.FS
	b          *Backend
	containers []classes.Holder
	now        time.Time
}

const rotating = "\nmonitoring: {containers: all, rotate: 10s}\n"

func newTurns(t *testing.T, fs *sim.FS) *turns {
	t.Helper()
	r := &turns{fs: fs, now: time.Unix(1000, 0)}
	r.b = New(Options{FS: r.fs, Threads: &several{}, Now: func() time.Time { return r.now }})
	apply(t, r.b, twoPartitions+rotating)
	for pid := 1; pid <= 3; pid++ {
		r.fs.AddTask(pid, "qos-gold")
		r.containers = append(r.containers, classes.Holder{ID: fmt.Sprint("c", pid), Container: "main", PID: pid})
	}
	return r
}

// monitor begins a turn if the time of the present one is over.
func (r *turns) monitor(t *testing.T) {
	t.Helper()
	r.b.MonitorAll(t.Context(), inClass("gold", r.containers...))
}

// TestContainersTakeTurnsWithACounter has one counter for three containers, because the root group and two classes use
// 4 of 5. Each container gets it in turn. Its values show for how many seconds it was counted.
func TestContainersTakeTurnsWithACounter(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters, spec.Domains = 5, []int{0}
	r := newTurns(t, sim.New(spec))
	if every := r.b.RotateEvery(); every != 10*time.Second {
		t.Fatalf("turns take %v", every)
	}

	for round, want := range [][]string{{"t", "", ""}, {"", "t", ""}, {"", "", "t"}, {"t", "", ""}} {
		r.monitor(t)
		if diff := cmp.Diff(want, assignedTo(t, r.fs, inGold("c1"), inGold("c2"), inGold("c3"))); diff != "" {
			t.Errorf("turn %d: counters (-want +got):\n%s", round, diff)
		}
		if got := r.b.Status().Monitored["gold"].Missing["NoFreeCounter"]; got != max(0, 2-round) {
			t.Errorf("turn %d: %d containers have never had a counter", round, got)
		}
		r.now = r.now.Add(3 * time.Second)
		r.monitor(t) // before the end of the turn
		if diff := cmp.Diff(want, assignedTo(t, r.fs, inGold("c1"), inGold("c2"), inGold("c3"))); diff != "" {
			t.Errorf("turn %d: counters before its end (-want +got):\n%s", round, diff)
		}
		r.fs.Count(inGold(r.containers[round%3].ID), 0, "mbm_total_bytes", "1000")
		r.now = r.now.Add(7 * time.Second)
	}

	for i, want := range [][]any{{2000.0, 20.0}, {1000.0, 10.0}, {1000.0, 10.0}} {
		c := r.containers[i]
		got := []any{containerUses(t, r.b, c, "memory_bandwidth_bytes_total"), containerUses(t, r.b, c, "memory_bandwidth_observed_seconds_total")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: bytes and seconds (-want +got):\n%s", c.ID, diff)
		}
	}
}

// TestEachContainerGetsACounterOfEachCacheInTurn uses a group of another program that holds two counters in cache 1 and none in
// cache 0. Of the 7 counters of each cache, the root group uses two, and two classes use one each. So cache 0 has three counters for
// containers, and cache 1 has one.
func TestEachContainerGetsACounterOfEachCacheInTurn(t *testing.T) {
	spec := sim.AMDSpec()
	spec.Counters = 7
	fs := sim.New(spec)
	must(t, fs.Mkdir(sim.MountPoint+"/theirs")) // gets two counters of each cache
	r := newTurns(t, fs)
	must(t, fs.WriteFile(sim.MountPoint+"/theirs/mbm_L3_assignments", []byte("mbm_total_bytes:0=_\nmbm_local_bytes:0=_\n")))

	had := map[string]int{}
	for range 9 {
		r.monitor(t)
		for _, c := range r.containers {
			text, err := r.fs.ReadFile(sim.MountPoint + "/" + inGold(c.ID) + "/mbm_L3_assignments")
			must(t, err)
			if total, _, _ := strings.Cut(string(text), "\n"); strings.Contains(total, "1=e") {
				had[c.ID]++
			}
		}
		r.now = r.now.Add(10 * time.Second)
	}
	if diff := cmp.Diff(map[string]int{"c1": 3, "c2": 3, "c3": 3}, had); diff != "" {
		t.Errorf("turns with a counter of cache 1 (-want +got):\n%s", diff)
	}
}

// TestTheObservedTimePausesWithoutAMonitoringGroup takes the RMIDs of all containers for more classes, and gives them back later.
func TestTheObservedTimePausesWithoutAMonitoringGroup(t *testing.T) {
	spec := sim.AMDSpec()
	spec.L2, spec.TelemetryRMIDs, spec.Counters, spec.Domains = nil, 12, 32, []int{0}
	r := newTurns(t, sim.New(spec))
	r.monitor(t)

	r.now = r.now.Add(10 * time.Second)
	apply(t, r.b, classesNamed("c", 10)+rotating) // of 12 RMIDs, the root group and the former class gold have the others
	r.monitor(t)
	r.now = r.now.Add(1000 * time.Second)
	apply(t, r.b, twoPartitions+rotating)
	must(t, r.b.Release(t.Context(), nobody))
	repair(t, r.b)
	r.monitor(t)
	if got := containerUses(t, r.b, r.containers[0], "memory_bandwidth_observed_seconds_total"); got != 10.0 {
		t.Errorf("observed %v s, and a counter has counted for 10 s", got)
	}
}
