// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// withIOAlloc returns a machine with 4 CLOSIDs, which can limit device traffic. `masks` is the mask of device traffic, or "disabled".
func withIOAlloc(masks string) sim.Spec {
	spec := sim.AMDSpec()
	spec.L2, spec.MB, spec.IOAlloc = nil, nil, masks
	spec.L3.CLOSIDs, spec.L3.Shareable = 4, 0
	return spec
}

func TestDeviceTrafficUsesACLOSID(t *testing.T) {
	b := newBackend(sim.New(withIOAlloc("00f")), nil)
	three := parse(t, `{partitions: {p: {l3Allocation: "100%", classes: {a: , b: , c: }}}}`)
	for name, err := range map[string]error{"check": b.Check(t.Context(), three), "apply": b.Apply(t.Context(), three)} {
		want := "3 classes are 1 too many: the CPU has 4 CLOSIDs, of which resctrl's root group uses 1, device traffic (io_alloc) uses 1; "
		if !errors.Is(err, ErrNoCLOSID) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	apply(t, b, `{partitions: {p: {l3Allocation: "100%", classes: {a: , b: }}}}`)
	want := "0 of 4 CLOSIDs are free: classes use 2, resctrl's root group uses 1, device traffic (io_alloc) uses 1"
	if diff := cmp.Diff(want, conditionOf(b.Status(), ConditionCLOSIDs).Message); diff != "" {
		t.Error(diff)
	}
}

func TestClassesThatHaveOnlyCacheThatDevicesUseAreReported(t *testing.T) {
	// 11 ways, of which other hardware uses the top two: https://github.com/intel/intel-cmt-cat/issues/135
	eleven := sim.IntelSpec()
	eleven.L2 = nil
	eleven.L3 = &sim.Cache{Ways: 11, Shareable: 0x600, CLOSIDs: 16, Size: 11 << 20, MinBits: 1}
	const common = "devices or other hardware also use cache bits of classes (shareable_bits, io_alloc_cbm): "
	for name, test := range map[string]struct {
		spec   sim.Spec
		shares string
		want   classes.Condition
	}{
		"two classes have only these bits": {eleven, `bulk: {l3Allocation: "80%", classes: {bulk: {}}}, voice: {l3Allocation: "10%", classes: {voice: {}}},
			web: {l3Allocation: "10%", classes: {web: {}}}`,
			classes.Condition{Type: "CacheNotShared", Reason: "OnlyShared", Message: common + "all bits of voice, web (give them masks with other bits)"}},
		"a class also has other bits": {eleven, `p: {l3Allocation: "100%", classes: {a: {}, b: {l3Allocation: "50%"}}}`,
			classes.Condition{Type: "CacheNotShared", Healthy: true, Reason: "PartlyShared", Message: common + "some bits of a"}},
		"the partition with sharedWithDevices gets the bits": {eleven, `bulk: {l3Allocation: "80%", sharedWithDevices: true, classes: {bulk: {}}},
			voice: {l3Allocation: "10%", classes: {voice: {}}}, web: {l3Allocation: "10%", classes: {web: {}}}`,
			classes.Condition{Type: "CacheNotShared", Healthy: true, Reason: "PartlyShared", Message: common + "some bits of bulk"}},
		"no class has these bits": {eleven, `p: {l3Allocation: "0x1ff", classes: {a: {}}}`, classes.Condition{}},
		"io_alloc": {withIOAlloc("00f"), `p: {l3Allocation: "100%", classes: {a: {l3Allocation: "0xf"}, b: {l3Allocation: "0xff0"}}}`,
			classes.Condition{Type: "CacheNotShared", Reason: "OnlyShared", Message: common + "all bits of a (give them masks with other bits)"}},
		"Arm, which reports all bits as shareable": {sim.ArmSpec(8), `p: {l3Allocation: "100%", classes: {a: {}}}`, classes.Condition{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(sim.New(test.spec), nil)
			for from, status := range applied(t, b, "{partitions: {"+test.shares+"}}") {
				if diff := cmp.Diff(test.want, conditionOf(status, "CacheNotShared")); diff != "" {
					t.Errorf("%s: %s", from, diff)
				}
			}
		})
	}
}

// TestPartitionsWithSharedWithDevicesGetTheBitsThatDevicesUse has a cache of 12 bits, of which other hardware uses the highest two,
// the lowest two, or none. A partition with sharedWithDevices gets that end of the mask. The other partitions get their bits from
// the lowest free one on, in the order of their names. Each row adds a partition to the partition b, which has 50%.
func TestPartitionsWithSharedWithDevicesGetTheBitsThatDevicesUse(t *testing.T) {
	for text, test := range map[string]struct {
		shareable uint64
		want      string
	}{
		`a: {l3Allocation: "50%", sharedWithDevices: true`: {0xc00, "a fc0, b 3f"},
		`a: {l3Allocation: "25%", sharedWithDevices: true`: {0xc00, "a e00, b 3f"}, // 3 bits belong to no partition
		`a: {l3Allocation: "25%"`:                          {0xc00, "a 7, b 1f8"},
		`c: {l3Allocation: "25%", sharedWithDevices: true`: {0x003, "b 1f8, c 7"},
		`d: {l3Allocation: "25%", sharedWithDevices: true`: {0, "b 3f, d 1c0"},
	} {
		spec := sim.IntelSpec()
		spec.L2, spec.L3.Shareable = nil, test.shareable
		b := newBackend(sim.New(spec), nil)
		name := text[:1]
		apply(t, b, "{partitions: {"+text+", classes: {"+name+": {}}}, b: {l3Allocation: \"50%\", classes: {b: {}}}}}")
		var got []string
		for _, class := range slices.Sorted(maps.Keys(b.Schemata())) {
			_, mask, _ := strings.Cut(dividedIn(b)[class], "L3:0=")
			mask, _, _ = strings.Cut(mask, ";")
			got = append(got, class+" "+mask)
		}
		if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s, shareable %#x: %s", text, test.shareable, diff)
		}
	}
}

func TestAPartitionWithSharedWithDevicesCannotHaveAMask(t *testing.T) {
	const masks = `{partitions: {a: {l3Allocation: "0x3", sharedWithDevices: true, classes: {a: {}}}}}`
	err := newBackend(sim.New(sim.IntelSpec()), nil).Check(t.Context(), parse(t, masks))
	if err == nil || !strings.HasSuffix(err.Error(), `partition "a" has 0x3 and sharedWithDevices; write per cent or a size, or remove sharedWithDevices`) {
		t.Errorf("got %v", err)
	}
}

// TestRMIDsForEnergyAreReservedForClasses has 12 RMIDs for energy, fewer than for caches, and 8 CLOSIDs. One RMID for each CLOSID is
// reserved for classes, so 4 of 10 containers are monitored, and five more classes still get their groups.
func TestRMIDsForEnergyAreReservedForClasses(t *testing.T) {
	spec := sim.IntelSpec()
	spec.TelemetryRMIDs = 12
	fs, b, containers := newMonitored(t, spec, monitorAll, "qos-gold", 10)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	if got := b.Status().Monitored["gold"]; got.Containers != 4 || got.Missing["NoFreeRMID"] != 6 {
		t.Errorf("monitored are %+v, want 4, because 8 of 12 RMIDs are reserved for classes", got)
	}

	apply(t, b, classesNamed("c", 5)+"\nmonitoring: containers")
	if got := len(monitorGroups(fs)); got != 4 {
		t.Errorf("%d containers are monitored, want 4 as before", got)
	}
	for i := range 5 {
		if class := fmt.Sprint("c", i); b.Schemata()[class] == "" {
			t.Errorf("class %s has no group", class)
		}
	}
}

// TestDeviceTrafficNeedsNoRMID has 12 RMIDs: for 11 classes and the root group.
func TestDeviceTrafficNeedsNoRMID(t *testing.T) {
	spec := sim.AMDSpec()
	spec.L2, spec.RMIDs, spec.IOAlloc = nil, 12, "f" // io_alloc is on
	b := newBackend(sim.New(spec), nil)
	apply(t, b, classesNamed("c", 11))
	if got, want := conditionOf(b.Status(), ConditionCLOSIDs).Message, "0 of 12 RMIDs (info/L3_MON/num_rmids) are free: classes use 11, resctrl's root group uses 1"; got != want {
		t.Errorf("the condition is %q, want %q", got, want)
	}
}

// TestOtherClassesGetTheRMIDsOfRemovedGroups has three RMIDs, for the root group and two classes. The classes d replace the classes c, and
// fail, because the kernel has not freed the RMIDs of the removed groups yet. The next configuration, with the classes d or again with c,
// gets these RMIDs.
func TestOtherClassesGetTheRMIDsOfRemovedGroups(t *testing.T) {
	for _, last := range []string{"c", "d"} {
		spec := sim.AMDSpec()
		spec.RMIDs, spec.Limbo = 3, true
		fs := sim.New(spec)
		b := newBackend(fs, nil)
		apply(t, b, classesNamed("c", 2))
		err := b.Apply(t.Context(), parse(t, classesNamed("d", 2)))
		if !errors.Is(err, syscall.EBUSY) || !strings.HasSuffix(err.Error(), "and the class files are then applied again") {
			t.Fatalf("while no RMID is free: %v", err)
		}
		fs.Drain()
		wantNoDrift(t, b) // Repair must not use the free RMIDs to create the removed groups again
		apply(t, b, classesNamed(last, 2))
		wantNoDrift(t, b)
		if got := b.Schemata(); got[last+"1"] == "" {
			t.Errorf("class %s1 has no group; the classes have %v", last, got)
		}
	}
}

// TestMoreClassesGetTheRMIDsOfContainers has fewer RMIDs than CLOSIDs, so that the RMIDs limit the number of classes.
func TestMoreClassesGetTheRMIDsOfContainers(t *testing.T) {
	spec := sim.AMDSpec()
	spec.L2, spec.TelemetryRMIDs = nil, 12
	fs, b, containers := newMonitored(t, spec, monitorAll, "qos-gold", 10)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	if got := len(monitorGroups(fs)); got != 9 {
		t.Errorf("%d containers are monitored, want 9 of 12 RMIDs, because the root group and two classes have three", got)
	}

	apply(t, b, classesNamed("c", 8)+"\nmonitoring: containers")
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	if got := len(monitorGroups(fs)); got != 1 {
		t.Errorf("%d containers are monitored, want 1 of 12 RMIDs, because the root group, 8 classes and two former ones have 11", got)
	}

	// Of the former classes, only gold has containers. The groups of the others can be removed, so their RMIDs count as free.
	const want = "12 classes are 2 too many: the CPU has 12 RMIDs (info/PERF_PKG_MON/num_rmids), of which resctrl's root group uses 1, " +
		"groups of former classes that are in use (qos-gold) use 1; "
	if err := b.Check(t.Context(), parse(t, classesNamed("d", 12))); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("check: %v", err)
	}
}
