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
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// twoClasses simulates running containers of the classes gold and bronze, and a CPU with few RMIDs for them. The containers of gold
// are older.
type twoClasses struct {
	fs      *sim.FS
	b       *Backend
	running []classes.InClass
}

// newTwoClasses starts a container of gold for each of the `rmids` RMIDs, and then `bronze` containers of bronze. Each container
// has a pod of its own.
func newTwoClasses(t *testing.T, spec sim.Spec, rmids, bronze int) *twoClasses {
	t.Helper()
	spec.RMIDs = 8 + rmids // 8 are reserved for classes
	fs, b, gold := newMonitored(t, spec, monitorAll, "qos-gold", rmids)
	c := &twoClasses{fs, b, inClass("gold", gold...)}
	for i := range bronze {
		pid := rmids + 1 + i
		fs.AddTask(pid, "qos-bronze")
		c.running = append(c.running, classes.InClass{Holder: classes.Holder{ID: fmt.Sprint("c", pid), PID: pid}, Class: "bronze"})
	}

	for i, container := range c.running {
		c.running[i].PodUID = "pod of " + container.ID
		b.Monitor(t.Context(), container.Holder, container.Class)
	}

	c.want(t, "all are given to gold", rmids, 0)
	return c
}

func (c *twoClasses) round(t *testing.T) {
	t.Helper()
	repair(t, c.b)
	c.b.MonitorAll(t.Context(), c.running)
}

// want compares the number of monitoring groups of each class, and checks that the status has the same numbers.
func (c *twoClasses) want(t *testing.T, when string, gold, bronze int) {
	t.Helper()
	want, got, reported := map[string]int{"gold": gold, "bronze": bronze}, map[string]int{"gold": 0, "bronze": 0}, map[string]int{}
	for group := range monitorGroups(c.fs) {
		class, _, _ := strings.Cut(strings.TrimPrefix(group, groups.Prefix), "/")
		got[class]++
	}
	for class, monitored := range c.b.Status().Monitored {
		reported[class] = monitored.Containers
	}
	delete(reported, classes.SystemDefault)
	if diff := cmp.Diff(want, got) + cmp.Diff(want, reported); diff != "" {
		t.Errorf("%s, monitored containers by class (-want +got):\n%s", when, diff)
	}
}

// TestRMIDsAreSharedBetweenClasses has a class whose containers have all RMIDs, and another class whose containers
// start later. In each round, at most 4 containers lose their RMID.
func TestRMIDsAreSharedBetweenClasses(t *testing.T) {
	c := newTwoClasses(t, sim.IntelSpec(), 12, 20)
	c.round(t)
	c.want(t, "after a round", 8, 4)
	c.round(t)
	c.want(t, "after two rounds", 6, 6)
	if got := monitorGroups(c.fs); got["qos-gold/mon_groups/qos-c6"] != "6" || got["qos-bronze/mon_groups/qos-c13"] != "13" {
		t.Errorf("the groups are %v, want those of the oldest containers", slices.Sorted(maps.Keys(got)))
	}

	c.fs.Inject(nil) // counts the calls from 0
	c.round(t)
	if c.fs.Calls() > 0 {
		t.Errorf("although the RMIDs are shared evenly, Repair and MonitorAll make %d changes, want 0", c.fs.Calls())
	}

	want := map[string]classes.Monitored{
		"gold":                {Containers: 6, Missing: missingFor("NoFreeRMID", 6)},
		"bronze":              {Containers: 6, Missing: missingFor("NoFreeRMID", 14)},
		classes.SystemDefault: {Missing: missingFor("NoFreeRMID", 0)},
	}

	if diff := cmp.Diff(want, c.b.Status().Monitored); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	if got := monitoredCondition(t, c.b).Message; !strings.HasPrefix(got, "containers monitored: 12 (bronze: 6 of 20, gold: 6 of 12); not monitored: 20 (") {
		t.Errorf("the message of the condition is %q", got)
	}
}

// missingFor returns the numbers of unmonitored containers by reason. All but one are 0.
func missingFor(reason string, n int) map[string]int {
	missing := map[string]int{"NoFreeRMID": 0, "NoFreeRMIDOfClass": 0, "NoFreeCounter": 0, "RMIDsNotFreeYet": 0, "ForeignGroup": 0, "CannotMonitor": 0, "Error": 0}
	missing[reason] = n
	return missing
}

// TestOnArmTheContainersOfAClassShareTheRMIDsOfTheClass has 64 RMIDs and 16 CLOSIDs, so that each class has 4: one for
// itself, and 3 for containers. With code and data apart, the kernel has half of both (resctrl_arch_set_cdp_enabled in
// drivers/resctrl/mpam_resctrl.c).
func TestOnArmTheContainersOfAClassShareTheRMIDsOfTheClass(t *testing.T) {
	apart := sim.ArmSpec(8)
	apart.L3.CDP, apart.Options = true, "cdp"
	t.Run("unified", func(t *testing.T) { sharesOnArm(t, sim.ArmSpec(8), 64, 16) })
	t.Run("code and data apart", func(t *testing.T) { sharesOnArm(t, apart, 32, 8) })
}

// sharesOnArm starts containers: c1 to c4 of the pod a, and c5 and c6 of the pod b, in the class gold, and c7 and c8 in bronze.
func sharesOnArm(t *testing.T, spec sim.Spec, rmids, closids int) {
	fs, b, gold := newMonitored(t, spec, monitorAll+"options: {mb: {optional: true}}\n", "qos-gold", 6)
	for i := range gold {
		gold[i].PodUID = map[bool]string{true: "a", false: "b"}[i < 4]
	}
	c := &twoClasses{fs, b, inClass("gold", gold...)}
	for pid := 7; pid <= 8; pid++ {
		fs.AddTask(pid, "qos-bronze")
		c.running = append(c.running, inClass("bronze", classes.Holder{ID: fmt.Sprint("c", pid), PID: pid})...)
	}
	for _, container := range c.running { // the pod a gets all RMIDs of gold
		b.Monitor(t.Context(), container.Holder, container.Class)
	}
	c.want(t, "at first", 3, 2)
	want := map[string]classes.Monitored{
		"gold":                {Containers: 3, Missing: missingFor("NoFreeRMIDOfClass", 3)},
		"bronze":              {Containers: 2, Missing: missingFor("NoFreeRMIDOfClass", 0)},
		classes.SystemDefault: {Missing: missingFor("NoFreeRMIDOfClass", 0)},
	}
	if diff := cmp.Diff(want, c.b.Status().Monitored); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	message := fmt.Sprintf("not monitored: 3 (all RMIDs of the container's class are in use or not free yet: 3); "+
		"of the %d RMIDs of this machine (on Arm, each of the %[2]d CLOSIDs has 4, called PMGs, and its class needs one), %[2]d are reserved for classes",
		rmids, closids)
	if got := monitoredCondition(t, c.b).Message; !strings.Contains(got, message) {
		t.Errorf("the message of the condition is %q, want %q", got, message)
	}

	c.round(t)
	inGold := func() (names []string) {
		for group := range monitorGroups(c.fs) {
			if name, ok := strings.CutPrefix(group, "qos-gold/mon_groups/qos-"); ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	if diff := cmp.Diff([]string{"c1", "c2", "c5"}, inGold()); diff != "" {
		t.Errorf("pods share the RMIDs of their class (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, c.b.Status().Monitored); diff != "" {
		t.Errorf("status after the exchange (-want +got):\n%s", diff)
	}

	c.b.Unmonitor("c1")
	c.running = slices.DeleteFunc(c.running, func(in classes.InClass) bool { return in.ID == "c1" })
	c.round(t)
	if diff := cmp.Diff([]string{"c2", "c3", "c5"}, inGold()); diff != "" {
		t.Errorf("the RMID of a container that has ended is free (-want +got):\n%s", diff)
	}
}

// TestRMIDsOfAClassAreSharedBetweenItsPods has 4 RMIDs for containers of gold. The containers c1 to c4 of the pod a have them, and c5 to
// c7 of the pod b start later. After a round, each pod has two.
func TestRMIDsOfAClassAreSharedBetweenItsPods(t *testing.T) {
	c := newTwoClasses(t, sim.IntelSpec(), 4, 3)
	for i := range c.running {
		c.running[i].PodUID = map[bool]string{true: "a", false: "b"}[i < 4]
	}

	for i := range c.running { // newTwoClasses has put the containers of the pod b into bronze
		if c.running[i].Class == "bronze" {
			c.running[i].Class = "gold"
			c.fs.AddTask(c.running[i].PID, "qos-gold")
		}
	}

	c.round(t)
	want := []string{"qos-gold/mon_groups/qos-c1", "qos-gold/mon_groups/qos-c2", "qos-gold/mon_groups/qos-c5", "qos-gold/mon_groups/qos-c6"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(monitorGroups(c.fs)))); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// TestContainersKeepTheirRMIDsIfNoOtherContainerCanUseThem has 8 containers of gold, which have all RMIDs, and 4 of bronze, which wait for
// RMIDs and cannot be monitored any more. If the kernel refuses to create groups, the plugin has already removed 4 groups of gold for them,
// and cannot make these groups again.
func TestContainersKeepTheirRMIDsIfNoOtherContainerCanUseThem(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*testing.T, *twoClasses)
		gold  int
	}{
		"another program has put them into a group": {func(t *testing.T, c *twoClasses) {
			t.Helper()
			must(t, c.fs.Mkdir(sim.MountPoint+"/theirs"))
			for _, container := range c.running[8:] {
				c.fs.AddTask(container.PID, "theirs")
			}
		}, 8},
		"the kernel refuses to create groups": {func(_ *testing.T, c *twoClasses) {
			refuse(c.fs, syscall.EPERM, func(call sim.Call) bool { return call.Op == "mkdir" })
		}, 8 - 4},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTwoClasses(t, sim.IntelSpec(), 8, 4)
			test.spoil(t, c)
			for i := range 5 {
				c.round(t)
				c.want(t, fmt.Sprint("after round ", i), test.gold, 0)
			}
		})
	}
}

// TestNoFurtherRMIDsAreTakenAwayWhileRemovedGroupsStillHaveTheirs simulates caches that still have lines of removed
// groups. Another program uses the RMIDs that are reserved for classes.
func TestNoFurtherRMIDsAreTakenAwayWhileRemovedGroupsStillHaveTheirs(t *testing.T) {
	spec := sim.IntelSpec()
	spec.Limbo = true
	c := newTwoClasses(t, spec, 12, 12)
	for i := range 5 { // the root group, gold and bronze have the other 3 of the 8 RMIDs for classes
		must(t, c.fs.Mkdir(fmt.Sprintf("%s/x%d", sim.MountPoint, i)))
	}

	// The first round removes 4 of the 12 groups of gold, the most that a round may remove. The next rounds remove none.
	for range 3 {
		c.round(t)
	}

	c.want(t, "while no RMID is free", 8, 0)

	c.fs.Drain()
	c.round(t)
	c.want(t, "when the RMIDs are free", 8, 4)
}

func TestTheStatusHasTheReasonWhyAContainerIsNotMonitored(t *testing.T) {
	few := sim.IntelSpec()
	few.RMIDs = 3 // for the root group and two classes
	for reason, test := range map[string]struct {
		spec      sim.Spec
		id, group string
	}{
		"NoFreeRMID":   {few, "c1", "qos-gold"},
		"ForeignGroup": {sim.IntelSpec(), "c1", "qos-bronze"}, // another program has moved the container, whose class is gold
		"Error":        {sim.IntelSpec(), "c/1", "qos-gold"},  // this ID cannot be the name of a group
	} {
		t.Run(reason, func(t *testing.T) {
			_, b, _ := newMonitored(t, test.spec, monitorAll, test.group, 1)
			b.MonitorAll(t.Context(), inClass("gold", classes.Holder{ID: test.id, PID: 1}))
			want := classes.Monitored{Missing: missingFor(reason, 1)}
			if diff := cmp.Diff(want, b.Status().Monitored["gold"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAContainerKeepsItsRMIDOverAChangeOfClass changes the class on Linux before 6.5, where the group is removed and created again.
// Other containers wait for an RMID meanwhile.
func TestAContainerKeepsItsRMIDOverAChangeOfClass(t *testing.T) {
	c := newTwoClasses(t, sim.IntelSpec(), 2, 2)
	refuse(c.fs, syscall.EPERM, func(call sim.Call) bool { return call.Op == "rename" })
	must(t, c.b.Enforce(t.Context(), c.running[0].Holder, "gold", "bronze"))
	wantGroups(t, c.fs, map[string]string{"qos-bronze/mon_groups/qos-c1": "1", "qos-gold/mon_groups/qos-c2": "2"})
}

func TestMonitoredContainersOfTheSystemDefaultCountForIt(t *testing.T) {
	_, b, containers := newMonitored(t, sim.IntelSpec(), twoPartitions+"monitoring: {containers: [system/default]}", "", 1)
	b.MonitorAll(t.Context(), inClass(classes.SystemDefault, containers...))

	counted := map[string]int{}
	for class, monitored := range b.Status().Monitored {
		counted[class] = monitored.Containers
	}
	if diff := cmp.Diff(map[string]int{classes.SystemDefault: 1}, counted); diff != "" {
		t.Errorf("monitored containers by class (-want +got):\n%s", diff)
	}
	if got := monitoredCondition(t, b).Message; got != "containers monitored: 1 (system/default: 1 of 1)" {
		t.Errorf("the condition is %q", got)
	}
}

// TestApplyingTheSameConfigurationAgainTakesNoRMIDFromContainers applies a configuration again after another program has used RMIDs for a
// time. Of 14 RMIDs, 8 are reserved for classes, and the root group, gold and bronze have only 3 of them. So 4 groups of the other program
// can exist beside 4 containers.
func TestApplyingTheSameConfigurationAgainTakesNoRMIDFromContainers(t *testing.T) {
	spec := sim.IntelSpec()
	spec.RMIDs = 14
	fsys, b, containers := newMonitored(t, spec, monitorAll, "qos-gold", 4)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	theirs := func(i int) string { return fmt.Sprintf("%s/mon_groups/theirs%d", sim.MountPoint, i) }
	for i := range 4 {
		must(t, fsys.Mkdir(theirs(i)))
	}
	repair(t, b)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	for i := range 4 { // the plugin still counts these groups when it applies the configuration
		must(t, fsys.Remove(theirs(i)))
	}

	before := monitorGroups(fsys)
	apply(t, b, monitorAll)
	if diff := cmp.Diff(before, monitorGroups(fsys)); diff != "" || len(before) != 4 {
		t.Errorf("%d monitoring groups; after the same configuration (-before +after):\n%s", len(before), diff)
	}
}
