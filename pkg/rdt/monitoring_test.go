// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const monitorAll = twoPartitions + "monitoring: containers\n"

// several simulates containers with one thread each. The ID of the thread is the PID of the container.
type several struct{ ended map[int]bool }

func (s *several) Threads(h classes.Holder) ([]int, error) {
	if s.ended[h.PID] {
		return nil, nil
	}
	return []int{h.PID}, nil
}

// newMonitored applies a configuration, and starts containers "c1" to "cN" with the PIDs 1 to N in a group.
func newMonitored(t *testing.T, spec sim.Spec, text, group string, n int) (*sim.FS, *Backend, []classes.Holder) {
	t.Helper()
	fs := sim.New(spec)
	b := newBackend(fs, &several{})
	apply(t, b, text)
	var containers []classes.Holder
	for pid := 1; pid <= n; pid++ {
		fs.AddTask(pid, group)
		containers = append(containers, classes.Holder{ID: fmt.Sprint("c", pid), Container: "main", PID: pid})
	}
	return fs, b, containers
}

// monitorGroups returns the threads of each monitoring group.
func monitorGroups(fs *sim.FS) map[string]string {
	groups := map[string]string{}
	for path, tasks := range fs.Dump() {
		if group := strings.TrimSuffix(strings.TrimPrefix(path, sim.MountPoint+"/"), "/tasks"); strings.Contains(group, "mon_groups/") {
			groups[group] = strings.ReplaceAll(strings.TrimSpace(tasks), "\n", " ")
		}
	}
	return groups
}

func wantGroups(t *testing.T, fs *sim.FS, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, monitorGroups(fs)); diff != "" {
		t.Errorf("monitoring groups and their threads (-want +got):\n%s", diff)
	}
}

// containerUses returns a measured value of a container. The optional argument `class` is the class of the container. The
// default is gold.
func containerUses(t *testing.T, b *Backend, h classes.Holder, measure string, class ...string) any {
	t.Helper()
	reading, err := b.MeasureClass(t.Context(), append(class, "gold")[0])
	must(t, err)
	if value, has := reading.Containers[h.ID][classes.Series{Measure: measure, Part: "0"}]; has {
		return value
	}
	return nil
}

func inClass(class string, containers ...classes.Holder) (all []classes.InClass) {
	for _, c := range containers {
		all = append(all, classes.InClass{Holder: c, Class: class})
	}
	return all
}

func monitoredCondition(t *testing.T, b *Backend) classes.Condition {
	t.Helper()
	conditions := b.Status().Conditions
	at := slices.IndexFunc(conditions, func(c classes.Condition) bool { return c.Type == monitoring.ConditionMonitored })
	if at < 0 {
		t.Fatalf("no condition in %+v", conditions)
	}
	return conditions[at]
}

// TestAMonitoredContainerHasAGroupOfItsOwn: the group has all threads of the container, also one that begins while they are moved.
// When the monitoring ends, the group is removed, and the threads stay in their class.
func TestAMonitoredContainerHasAGroupOfItsOwn(t *testing.T) {
	for name, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec()} {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, spec, "qos-gold")
			apply(t, b, monitorAll)
			c.listed = func(c *container, n int) {
				if n == 0 {
					c.fork(11, 12) // after the listing
				}
			}

			b.Monitor(t.Context(), target, "gold")
			wantGroups(t, c.fs, map[string]string{"qos-gold/mon_groups/qos-c": "10 11 12"})

			c.fs.Count("qos-gold/mon_groups/qos-c", 0, "llc_occupancy", "65536")
			if got := containerUses(t, b, target, "llc_occupancy_bytes"); got != 65536.0 {
				t.Errorf("the container occupies %v bytes, want 65536", got)
			}

			if got := monitoredCondition(t, b); !got.Healthy || got.Message != "containers monitored: 1 (gold: 1 of 1)" {
				t.Errorf("the condition is %+v, want 1 monitored container", got)
			}

			b.Unmonitor(target.ID)
			wantGroups(t, c.fs, map[string]string{})
			if got := containerUses(t, b, target, "llc_occupancy_bytes"); got != nil {
				t.Errorf("the container occupies %v bytes, want no value, because it has no monitoring group", got)
			}

			if got := c.groups(); got[10] != "qos-gold" || got[12] != "qos-gold" {
				t.Errorf("the threads are in the groups %v, want qos-gold", got)
			}
		})
	}
}

func TestTheOccupancyOfAContainerIsMissingWhileItsCounterIsUnavailable(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.AMDSpec(), monitorAll, "qos-gold", 1)
	b.Monitor(t.Context(), cs[0], "gold")
	for counter, want := range map[string]any{"65536": 65536.0, "Unavailable": nil} {
		fs.Count("qos-gold/mon_groups/qos-c1", 0, "llc_occupancy", counter)
		if got := containerUses(t, b, cs[0], "llc_occupancy_bytes"); got != want {
			t.Errorf("with the counter at %s, the container occupies %v bytes, want %v", counter, got, want)
		}
	}
}

// TestTheClassFileSelectsTheMonitoredClasses changes which classes are monitored while containers run.
func TestTheClassFileSelectsTheMonitoredClasses(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.IntelSpec(), twoPartitions+"monitoring: {containers: [bronze]}", "qos-gold", 1)
	for _, step := range []struct {
		text string
		want map[string]string
	}{
		{"monitoring: {containers: [bronze]}", map[string]string{}},
		{"monitoring: {containers: [bronze, gold]}", map[string]string{"qos-gold/mon_groups/qos-c1": "1"}},
		{"monitoring: {containers: [system/default]}", map[string]string{}},
		{"monitoring: containers", map[string]string{"qos-gold/mon_groups/qos-c1": "1"}},
		{"", map[string]string{}},
	} {
		apply(t, b, twoPartitions+step.text)
		b.Monitor(t.Context(), cs[0], "gold")
		t.Log(step.text)
		wantGroups(t, fs, step.want)
	}
}

// TestContainersAreMonitoredWithoutClasses monitors a container under a configuration without classes: on a CPU that
// can also allocate, and on a CPU that can only monitor. Its group is created again after an unmount, and Withdraw removes it.
func TestContainersAreMonitoredWithoutClasses(t *testing.T) {
	spec := sim.IntelSpec()
	spec.L2, spec.L3, spec.MB = nil, nil, nil
	for name, spec := range map[string]sim.Spec{"the CPU can allocate": sim.IntelSpec(), "the CPU can only monitor": spec} {
		t.Run(name, func(t *testing.T) {
			fs, b, cs := newMonitored(t, spec, "monitoring: containers", "", 1)
			b.Monitor(t.Context(), cs[0], classes.SystemDefault)
			wantGroups(t, fs, map[string]string{"mon_groups/qos-c1": "1"})

			fs.Unmount()
			wantRepair(t, b, "resctrl was unmounted")
			b.Monitor(t.Context(), cs[0], classes.SystemDefault)
			wantGroups(t, fs, map[string]string{"mon_groups/qos-c1": "1"})
			must(t, b.Withdraw(t.Context()))

			wantGroups(t, fs, map[string]string{})
		})
	}
}

// TestWithoutFreeRMIDsContainersRunUnmonitored starts more containers than there are free RMIDs. The CPU has 11
// RMIDs. 8 of them are reserved for classes, and another program uses one. When a container ends, its RMID goes to the container
// that has waited longest, and not to one that starts then.
func TestWithoutFreeRMIDsContainersRunUnmonitored(t *testing.T) {
	for name, limbo := range map[string]bool{"RMIDs become free at once": false, "RMIDs are in limbo for a while": true} {
		t.Run(name, func(t *testing.T) {
			spec := sim.IntelSpec()
			spec.RMIDs, spec.Limbo = 11, limbo
			fs, b, all := newMonitored(t, spec, monitorAll, "qos-gold", 4)
			cs, late := all[:3], all[3]
			must(t, fs.Mkdir(sim.MountPoint+"/qos-gold/mon_groups/theirs"))

			repair := func() {
				repair(t, b)
				b.MonitorAll(t.Context(), inClass("gold", cs...))
			}

			repair()
			theirs := "qos-gold/mon_groups/theirs"
			wantGroups(t, fs, map[string]string{theirs: "", "qos-gold/mon_groups/qos-c1": "1", "qos-gold/mon_groups/qos-c2": "2"})
			want := classes.Condition{Type: monitoring.ConditionMonitored, Reason: "NotAllMonitored", Message: "containers monitored: 2 (gold: 2 of 3); " +
				"not monitored: 1 (all RMIDs for containers are in use: 1); " +
				"of the 11 RMIDs of this machine, 8 are reserved for classes, and other programs use 1; " +
				"the rest is shared evenly between classes, and between the pods of a class"}

			if diff := cmp.Diff(want, monitoredCondition(t, b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}

			cs = cs[1:]
			b.Unmonitor("c1")
			b.Monitor(t.Context(), late, "gold")
			for i := 0; limbo && i < 5; i++ { // other programs use up the reserved RMIDs, so that only that of c1 becomes free
				_ = fs.Mkdir(fmt.Sprintf("%s/x%d", sim.MountPoint, i))
			}

			repair()
			if limbo {
				if got := monitoredCondition(t, b).Message; !strings.Contains(got, "the RMIDs of removed groups are not free yet: 1") {
					t.Errorf("while RMIDs are not free yet, the condition is %q", got)
				}
				fs.Drain()
				repair()
			}

			wantGroups(t, fs, map[string]string{theirs: "", "qos-gold/mon_groups/qos-c2": "2", "qos-gold/mon_groups/qos-c3": "3"})
		})
	}
}

// TestARestartAdoptsMonitoringGroups replaces the backend, as a restart of the plugin does. One of two containers
// ends during the restart. Groups of other programs stay, also one whose name begins like those of the plugin.
func TestARestartAdoptsMonitoringGroups(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.IntelSpec(), monitorAll, "qos-gold", 2)
	for _, c := range cs {
		b.Monitor(t.Context(), c, "gold")
	}

	fs.Count("qos-gold/mon_groups/qos-c1", 0, "llc_occupancy", "4096")
	for _, group := range []string{"theirs", "theirs/mon_groups/qos-c7", "qos-gold/mon_groups/c1"} {
		must(t, fs.Mkdir(sim.MountPoint+"/"+group))
	}

	restarted := newBackend(fs, &several{})
	apply(t, restarted, monitorAll)
	fs.Inject(nil) // counts the calls from 0
	restarted.Monitor(t.Context(), cs[0], "gold")
	if got := containerUses(t, restarted, cs[0], "llc_occupancy_bytes"); got != 4096.0 || fs.Calls() != 0 {
		t.Errorf("after the restart, the backend made %d changes, want 0; the container occupies %v bytes, want 4096", fs.Calls(), got)
	}

	restarted.Unmonitor("c2")
	wantGroups(t, fs, map[string]string{"qos-gold/mon_groups/qos-c1": "1", "qos-gold/mon_groups/c1": "", "theirs/mon_groups/qos-c7": ""})
}

// TestARestartCompletesAMonitoringGroup restarts the plugin after it has created a monitoring group, and before it has moved the second
// thread of the container to it.
func TestARestartCompletesAMonitoringGroup(t *testing.T) {
	c, _ := newContainer(t, sim.IntelSpec(), "qos-gold")
	must(t, c.fs.Mkdir(sim.MountPoint+"/qos-gold/mon_groups/qos-c"),
		c.fs.WriteFile(sim.MountPoint+"/qos-gold/mon_groups/qos-c/tasks", []byte("10")))
	b := newBackend(c.fs, c)
	apply(t, b, monitorAll)
	b.MonitorAll(t.Context(), inClass("gold", target))
	wantGroups(t, c.fs, map[string]string{"qos-gold/mon_groups/qos-c": "10 11"})
}

// TestAMonitoringGroupThatAnotherProgramRemovesIsMadeAgain removes a monitoring group twice. Two other containers are
// in groups of another program, and cannot be monitored.
func TestAMonitoringGroupThatAnotherProgramRemovesIsMadeAgain(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.IntelSpec(), monitorAll, "qos-gold", 1)
	for _, group := range []string{"qos-gold/mon_groups/watched", "theirs"} {
		must(t, fs.Mkdir(sim.MountPoint+"/"+group))
	}

	fs.AddTask(2, "qos-gold/mon_groups/watched")
	fs.AddTask(3, "theirs")
	cs = append(cs, classes.Holder{ID: "c2", PID: 2}, classes.Holder{ID: "c3", PID: 3})
	for range 2 {
		for _, c := range cs {
			b.Monitor(t.Context(), c, map[string]string{"c3": classes.SystemDefault, "c2": "gold", "c1": "gold"}[c.ID])
		}
		wantGroups(t, fs, map[string]string{"qos-gold/mon_groups/qos-c1": "1", "qos-gold/mon_groups/watched": "2"})

		must(t, fs.Remove(sim.MountPoint+"/qos-gold/mon_groups/qos-c1"))
		repair(t, b)
	}

	if got := monitoredCondition(t, b).Message; !strings.Contains(got, "another program has put the container into a resctrl group: 2") {
		t.Error(got)
	}
}

// TestAMonitoredContainerChangesItsClassByOneRename changes the class twice. Before the second change, "kubectl exec"
// starts a process in the control group, outside of the monitoring group.
func TestAMonitoredContainerChangesItsClassByOneRename(t *testing.T) {
	c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
	apply(t, b, monitorAll)
	b.Monitor(t.Context(), target, "gold")
	c.fork(10, 12)
	var made []string
	c.fs.Inject(func(call sim.Call) *sim.Fault {
		made = append(made, call.Op+" "+call.Path+" "+call.Data)
		return nil
	})
	must(t, b.Enforce(t.Context(), target, "gold", "bronze"))

	wantGroups(t, c.fs, map[string]string{"qos-bronze/mon_groups/qos-c": "10 11 12"})
	from, to := sim.MountPoint+"/qos-gold/mon_groups/qos-c", sim.MountPoint+"/qos-bronze/mon_groups/qos-c"
	if diff := cmp.Diff([]string{"rename " + from + " " + to}, made); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}

	c.fs.AddTask(20, "qos-bronze")
	c.tids = append(c.tids, 20)
	must(t, b.Enforce(t.Context(), target, "bronze", "gold"))

	if diff := cmp.Diff([]string{"qos-gold"}, slices.Compact(slices.Sorted(maps.Values(c.groups())))); diff != "" {
		t.Errorf("groups of the threads (-want +got):\n%s", diff)
	}
}

// TestThreadsAreMovedIfARenameOfTheMonitoringGroupDoesNotMoveThem has a kernel before Linux 6.5, which refuses the rename, and the
// kernel of Arm, whose rename leaves the threads in the former class.
func TestThreadsAreMovedIfARenameOfTheMonitoringGroupDoesNotMoveThem(t *testing.T) {
	for name, test := range map[string]struct {
		spec    sim.Spec
		refused bool
	}{"before Linux 6.5": {sim.IntelSpec(), true}, "Arm": {sim.ArmSpec(8), false}} {
		t.Run(name, func(t *testing.T) {
			c, b := newContainer(t, test.spec, "qos-gold")
			apply(t, b, monitorAll)
			b.Monitor(t.Context(), target, "gold")
			refuse(c.fs, syscall.EPERM, func(call sim.Call) bool { return test.refused && call.Op == "rename" })
			must(t, b.Enforce(t.Context(), target, "gold", "bronze"))
			wantGroups(t, c.fs, map[string]string{"qos-bronze/mon_groups/qos-c": "10 11"})
			if diff := cmp.Diff(map[int]string{10: "qos-bronze", 11: "qos-bronze"}, c.groups()); diff != "" {
				t.Errorf("groups of the threads (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAFailedChangeOfClassMovesTheGroupBack lets the kernel refuse to move a thread that is outside of the monitoring
// group.
func TestAFailedChangeOfClassMovesTheGroupBack(t *testing.T) {
	c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
	apply(t, b, monitorAll)
	b.Monitor(t.Context(), target, "gold")
	c.fs.AddTask(20, "qos-gold")
	c.tids = append(c.tids, 20)
	refuse(c.fs, syscall.EPERM, func(call sim.Call) bool { return call.Op == "write" })

	if err := b.Enforce(t.Context(), target, "gold", "bronze"); err == nil {
		t.Error("Enforce returned no error, although a thread could not be moved")
	}

	wantGroups(t, c.fs, map[string]string{"qos-gold/mon_groups/qos-c": "10 11"})
}
