// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// counted has the bandwidth counters of the class gold: of its control group, and of the monitoring groups of two containers.
type counted struct {
	own, c1, c2 string
	want        any
}

// wantTotals sets the counters of each step, and then compares the measured total of the class.
func wantTotals(t *testing.T, fs *sim.FS, b *Backend, steps []counted) {
	t.Helper()
	for _, step := range steps {
		fs.Count("qos-gold", 0, "mbm_total_bytes", step.own)
		fs.Count("qos-gold/mon_groups/qos-c1", 0, "mbm_total_bytes", step.c1)
		fs.Count("qos-gold/mon_groups/qos-c2", 0, "mbm_total_bytes", step.c2)
		if got := transferred(t, b, "gold"); got != step.want {
			t.Errorf("%+v: the class has transferred %v bytes, want %v", step, got, step.want)
		}
	}
}

// transferred returns the bytes that a class has transferred, or nil if the reading lacks them.
func transferred(t *testing.T, b *Backend, class string) any {
	t.Helper()
	if value, has := measured(t, b, class)[classes.Series{Measure: "memory_bandwidth_bytes_total", Part: "0"}]; has {
		return value
	}
	return nil
}

// TestAClassIsCountedAlthoughSomeOfItsCountersCannotBeRead reads counters that are unavailable for a while, as is usual
// on AMD. The total grows by what each counter has grown since its last reading. It is missing only if no counter can be
// read. In the last steps, the kernel resets the counters.
func TestAClassIsCountedAlthoughSomeOfItsCountersCannotBeRead(t *testing.T) {
	const none = "Unavailable"
	fs, b, cs := newMonitored(t, sim.AMDSpec(), monitorAll, "qos-gold", 2)
	for _, c := range cs {
		b.Monitor(t.Context(), c, "gold")
	}

	wantTotals(t, fs, b, []counted{
		// the counters of the class itself, of c1 and of c2, and the total of the class
		{"1000", "200", "30", 1230.0},
		{none, "250", "30", 1280.0},
		{none, "300", none, 1330.0},
		{"1000", "300", none, 1330.0},
		{"1100", "310", "50", 1460.0},
		{none, none, none, nil},
		{none, none, "60", 1470.0},
		{"1100", "310", "60", 1470.0},
		{"3", "5", "60", 1470.0}, // reset
		{"8", "7", "60", 1477.0},
	})
}

// TestNothingIsCountedTwiceAfterACounterWasNotReady reads counters that are not ready for a while, as on Arm, where
// they read 0. In the last steps, the kernel resets the counters. Its 0 looks the same, and so the growth up to the
// first other value is lost.
func TestNothingIsCountedTwiceAfterACounterWasNotReady(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.ArmSpec(8), monitorAll, "qos-gold", 2)
	for _, c := range cs {
		b.Monitor(t.Context(), c, "gold")
	}

	wantTotals(t, fs, b, []counted{
		// the counters of the class itself, of c1 and of c2, and the total of the class
		{"0", "0", "0", 0.0},
		{"1000", "200", "30", 1230.0},
		// For the class, the kernel shows only the sum of the three counters. It lacks c1 now, so the growth of the class itself is not known.
		{"1010", "0", "30", 1230.0},
		{"1010", "0", "0", 1230.0},    // c2 is not ready, either
		{"1010", "205", "30", 1245.0}, // 10 of the class itself, and 5 of c1
		{"0", "205", "30", 1245.0},    // the class itself is not ready
		{"1020", "205", "30", 1255.0},
		{"0", "0", "0", 1255.0}, // reset
		{"1", "3", "4", 1255.0}, // the growth since the reset is lost
		{"5", "7", "8", 1267.0},
	})
	if got := containerUses(t, b, cs[0], "memory_bandwidth_bytes_total", "gold"); got != 209.0 {
		t.Errorf("the container c1 has transferred %v bytes, want 209: 205 before the reset, and from 3 to 7 after it", got)
	}
}

// TestTheFirstValueOfACounterAfterARestartIsNotCounted restarts the plugin while some counters cannot be read: they are
// unavailable or, on Arm, 0. Their first value later is what they have counted since the boot, and would look like a peak.
func TestTheFirstValueOfACounterAfterARestartIsNotCounted(t *testing.T) {
	for name, test := range map[string]struct {
		spec  sim.Spec
		steps []counted
	}{
		// the counters of the class itself, of c1 and of c2, and the total of the class since the restart
		"AMD": {sim.AMDSpec(), []counted{
			{"Unavailable", "500", "Unavailable", 0.0},
			{"1000000", "510", "Unavailable", 10.0},
			{"1000000", "510", "900000", 10.0},
			{"1000005", "510", "900007", 22.0}, // 5 and 7 more
		}},
		"Arm": {sim.ArmSpec(8), []counted{
			{"5", "0", "8", 0.0},
			{"5", "7", "9", 1.0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, b, cs := newMonitored(t, test.spec, monitorAll, "qos-gold", 2)
			for _, c := range cs {
				b.Monitor(t.Context(), c, "gold")
			}
			restarted := newBackend(fs, &several{})
			apply(t, restarted, monitorAll)
			wantTotals(t, fs, restarted, test.steps)
		})
	}
}

// TestAClassCountsWhatMonitoredContainersUse compares the totals of two classes while a container changes its class,
// the monitoring of the containers ends, and another program adds and removes a monitoring group.
func TestAClassCountsWhatMonitoredContainersUse(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.IntelSpec(), monitorAll, "qos-gold", 2)
	count := func(group, value string) { fs.Count(group, 0, "mbm_total_bytes", value) }
	want := func(gold, bronze float64) {
		t.Helper()
		for class, want := range map[string]any{"gold": gold, "bronze": bronze} {
			if got := transferred(t, b, class); got != want {
				t.Errorf("%s has %v, want %v", class, got, want)
			}
		}
	}

	theirs := sim.MountPoint + "/qos-gold/mon_groups/theirs"
	must(t, fs.Mkdir(theirs))

	for _, c := range cs {
		b.Monitor(t.Context(), c, "gold")
	}

	count("qos-gold", "1000")
	count("qos-gold/mon_groups/qos-c1", "200")
	count("qos-gold/mon_groups/qos-c2", "30")
	count("qos-gold/mon_groups/theirs", "5") // a group of another program counts from its first reading
	want(1230, 0)
	count("qos-gold/mon_groups/theirs", "7005")
	want(8230, 0)

	count("qos-gold/mon_groups/qos-c1", "210") // counts for gold, the class of the container at that time
	must(t, b.Enforce(t.Context(), cs[0], "gold", "bronze"))

	count("qos-bronze/mon_groups/qos-c1", "215")
	want(8240, 5)
	if got := containerUses(t, b, cs[0], "memory_bandwidth_bytes_total", "bronze"); got != 215.0 {
		t.Errorf("after the change of its class, the container has transferred %v bytes, want 215", got)
	}

	must(t, fs.Remove(theirs))

	want(8240, 5)

	count("qos-gold", "1001")
	count("qos-gold/mon_groups/qos-c2", "32")
	b.Unmonitor("c1")
	b.Unmonitor("c2")
	want(8243, 5)

	must(t, fs.Remove(sim.MountPoint+"/qos-gold"))

	repair(t, b) // creates the group, whose counter begins at 0

	count("qos-gold", "4")
	want(8247, 5)
}

// TestTheTotalOfTheRootGroupContinuesAfterARemount sets the counters of the root group and of a container in it. The kernel may have counted
// long before the first value of the root group, so this value is not added to the total. The same is true after the remount. The group
// of the container is new each time, so its first value is added.
func TestTheTotalOfTheRootGroupContinuesAfterARemount(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.IntelSpec(), "monitoring: containers", "", 1)
	b.Monitor(t.Context(), cs[0], classes.SystemDefault)
	want := func(own, container string, want float64) {
		t.Helper()
		fs.Count("", 0, "mbm_total_bytes", own)
		fs.Count("mon_groups/qos-c1", 0, "mbm_total_bytes", container)
		if got := transferred(t, b, classes.SystemDefault); got != want {
			t.Errorf("the system default has transferred %v bytes, want %v", got, want)
		}
	}

	want("1000", "10", 10)
	want("1001", "10", 11)

	fs.Unmount()
	repair(t, b)

	b.Monitor(t.Context(), cs[0], classes.SystemDefault)
	want("5", "2", 13)
	want("8", "2", 16)
}

// TestNoOccupancyIsReportedIfAPartOfItIsUnknown makes the occupancy of one container of a class unreadable. A sum
// without it would be too low.
func TestNoOccupancyIsReportedIfAPartOfItIsUnknown(t *testing.T) {
	fs, b, cs := newMonitored(t, sim.AMDSpec(), monitorAll, "qos-gold", 1)
	b.Monitor(t.Context(), cs[0], "gold")
	fs.Count("qos-gold", 0, "llc_occupancy", "100")
	for _, step := range []struct {
		container string
		want      float64
		known     bool
	}{{"10", 110, true}, {"Unavailable", 0, false}, {"5", 105, true}} {
		fs.Count("qos-gold/mon_groups/qos-c1", 0, "llc_occupancy", step.container)
		got, known := measured(t, b, "gold")[classes.Series{Measure: "llc_occupancy_bytes", Part: "0"}]
		if got != step.want || known != step.known {
			t.Errorf("with the container's counter at %s, the class occupies %v (known: %v), want %v (known: %v)",
				step.container, got, known, step.want, step.known)
		}
	}
}
