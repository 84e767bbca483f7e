// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// withBothCaches has settings for each of two caches.
const withBothCaches = `{partitions: {p: {l3Allocation: "50%", mbAllocation: ["100%", "9000MBps"], classes: {
  a: {l3Allocation: {all: "100%", "1": "50%"}, mbAllocation: {all: ["100%", "9000MBps"], "1": ["50%", "4500MBps"]}}, b: {}, system/default: {l3Allocation: "50%"}}}}}`

const withoutTheSecond = "l3Allocation of cache IDs 1 has no effect: this machine has the IDs 0; mbAllocation of cache IDs 1 has no effect: this machine has the IDs 0"

// cpus takes the CPUs of the second cache offline, and online again.
type cpus struct{ offline, online func() }

// cpusComeAndGo takes the CPUs of the second cache offline and online, and checks how Repair restores a configured class, a
// draining class and the root group. At the end, the classes are removed while the CPUs are offline. When the CPUs come back, the
// root group must have its initial values.
func cpusComeAndGo(t *testing.T, b *Backend, second cpus, schemata func() map[string]string) {
	t.Helper()
	must(t, b.Apply(t.Context(), &Config{}))
	initial := schemata()
	apply(t, b, strings.Replace(withBothCaches, "b: {}", "b: {}, c: {l3Allocation: 50%}", 1))
	apply(t, b, withBothCaches)
	before := schemata()
	const changed = "caches were added or removed with their CPUs"

	second.offline()
	wantRepair(t, b, changed)
	wantNoDrift(t, b)
	if diff := cmp.Diff(map[string]string{"a": withoutTheSecond}, b.Status().Degraded); diff != "" {
		t.Errorf("without the CPUs (-want +got):\n%s", diff)
	}
	for class, text := range b.Schemata() {
		if strings.Contains(text, "1=") {
			t.Errorf("without the CPUs, the class %s has %q", class, text)
		}
	}
	preview, err := b.Preview(t.Context(), parse(t, withBothCaches))
	if diff := cmp.Diff(map[string]string{"a": withoutTheSecond}, preview.Degraded); err != nil || diff != "" {
		t.Errorf("check (-want +got):\n%s%v", diff, err)
	}

	second.online()
	wantRepair(t, b, changed)
	wantNoDrift(t, b)
	if len(b.Status().Degraded) > 0 {
		t.Errorf("with the CPUs: %v", b.Status().Degraded)
	}
	if diff := cmp.Diff(before, schemata()); diff != "" {
		t.Errorf("schemata (-before +after):\n%s", diff)
	}

	second.offline()
	must(t, b.Apply(t.Context(), &Config{}))
	second.online()
	wantRepair(t, b, changed)
	must(t, b.Release(t.Context(), nobody))
	if diff := cmp.Diff(initial, schemata()); diff != "" {
		t.Errorf("after a removal without the CPUs (-before +after):\n%s", diff)
	}
}

func TestClassesAreRepairedWhenTheCPUsOfACacheGoOfflineAndComeBack(t *testing.T) {
	for name, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec()} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(spec)
			cpusComeAndGo(t, newBackend(fs, nil), cpus{func() { fs.Offline(1) }, func() { fs.Online(1) }}, func() map[string]string { return schemataIn(t, fs) })
		})
	}
}

// TestDeviceTrafficIsRepairedWhenTheCPUsOfACacheGoOfflineOrComeBack takes the second cache offline or online after device traffic got
// 20% of the L3, the mask c00. The repair gives c00 to all caches that are online. Without the field deviceTraffic, each cache gets back
// the mask that it had at first: f, or fff if it comes online later.
func TestDeviceTrafficIsRepairedWhenTheCPUsOfACacheGoOfflineOrComeBack(t *testing.T) {
	for name, test := range map[string]struct {
		// `before` changes the CPUs before the configuration is applied, and `after` changes them afterwards.
		before, after func(fs *sim.FS)
		// `repaired` has the masks after the repair, and `want` those without the field.
		repaired, want string
	}{
		"they go offline":               {func(*sim.FS) {}, func(fs *sim.FS) { fs.Offline(1) }, "0=c00", "0=f"},
		"they come online":              {func(fs *sim.FS) { fs.Offline(1) }, func(fs *sim.FS) { fs.Online(1) }, "0=c00;1=c00", "0=f;1=fff"},
		"they go offline and come back": {func(*sim.FS) {}, func(fs *sim.FS) { fs.Offline(1); fs.Online(1) }, "0=c00;1=c00", "0=f;1=f"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(withIOAlloc("f"))
			b := newBackend(fs, nil)
			test.before(fs)
			apply(t, b, withDevices(`"20%"`))
			test.after(fs)
			repair(t, b)
			if got := deviceMasks(t, fs); got != test.repaired {
				t.Errorf("after the repair, device traffic has %s, want %s", got, test.repaired)
			}
			apply(t, b, withoutDevices)
			if got := deviceMasks(t, fs); got != test.want {
				t.Errorf("without the field, device traffic has %s, want %s", got, test.want)
			}
			// A second application finds the restored masks in the kernel. The status must not change.
			restoring := b.Status()
			apply(t, b, withoutDevices)
			if diff := cmp.Diff(b.Status(), restoring); diff != "" {
				t.Errorf("the status after the restore (-want, of the second application, +got):\n%s", diff)
			}
		})
	}
}

// TestCountersAreAssignedAgainWhenTheCPUsOfACacheComeBack has assignable counters, which the kernel has taken from all
// groups in that cache.
func TestCountersAreAssignedAgainWhenTheCPUsOfACacheComeBack(t *testing.T) {
	fs, b, containers := newCounted(t, 6, 2)
	used := func(now string, want float64) {
		t.Helper()
		fs.Count(inGold("c1"), 1, "mbm_total_bytes", now)
		reading, err := b.MeasureClass(t.Context(), "gold")
		must(t, err)
		series := classes.Series{Measure: "memory_bandwidth_bytes_total", Part: "1"}
		if got := []float64{reading.Class[series], reading.Containers["c1"][series]}; !slices.Equal(got, []float64{want, want}) {
			t.Errorf("with the counter at %s, the class and the container have transferred %v, want %v", now, got, want)
		}
	}
	used("1000", 1000)
	fs.Offline(1)
	repair(t, b)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	fs.Online(1)
	repair(t, b)
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	if diff := cmp.Diff([]string{"t", "t"}, assignedTo(t, fs, inGold("c1"), inGold("c2"))); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	used("5", 1005)
	if condition := monitoredCondition(t, b); !condition.Healthy {
		t.Errorf("the condition is %+v", condition)
	}
}

// TestClassesAreRepairedWhenACPUOfThisMachineGoesOffline takes the second CPU of this machine offline, which is the only
// one of its L3.
func TestClassesAreRepairedWhenACPUOfThisMachineGoesOffline(t *testing.T) {
	host := mountNewer(t, "L3/cbm_mask", "")
	set := func(online int) func() {
		return func() { must(t, os.WriteFile("/sys/devices/system/cpu/cpu1/online", []byte(strconv.Itoa(online)), 0)) }
	}
	cpusComeAndGo(t, newBackend(host, nil), cpus{set(0), set(1)}, func() map[string]string { return kernelSchemata(t) })
}

// cpusAt takes the CPUs of the second cache offline or online just before one of the writes.
type cpusAt struct {
	*sim.FS
	writes int // the number of writes that are left until then
	change func(place int)
}

func (c *cpusAt) WriteFile(name string, data []byte) error {
	if c.writes--; c.writes == 0 {
		c.change(1)
	}
	return c.FS.WriteFile(name, data)
}

// TestAChangeIsCompleteOrUndoneIfTheCPUsOfACacheGoOffline takes the CPUs of a cache offline or online before each write
// of a change of the class files.
func TestAChangeIsCompleteOrUndoneIfTheCPUsOfACacheGoOffline(t *testing.T) {
	devices := withIOAlloc("f")
	for name, test := range map[string]struct {
		spec        sim.Spec
		first, then string
	}{
		"values":         {sim.IntelSpec(), withBothCaches, strings.ReplaceAll(withBothCaches, "50%", "70%")},
		"new class":      {sim.IntelSpec(), withBothCaches, strings.Replace(withBothCaches, "b: {}", "b: {}, c: {l3Allocation: 50%}", 1)},
		"device traffic": {devices, `{partitions: {p: {l3Allocation: "80%", classes: {a: {}}}}}`, withDevices(`"20%"`)},
	} {
		for _, goes := range []bool{true, false} {
			for write := 1; ; write++ {
				fs := &cpusAt{FS: sim.New(test.spec)}
				fs.change = fs.Offline
				if !goes {
					fs.Offline(1)
					fs.change = fs.Online
				}
				b := newBackend(fs, nil)
				apply(t, b, test.first)
				fs.writes = write
				during := func(t *testing.T) { changesDuringHotplug(t, b, fs.FS, test.then) }
				t.Run(name+map[bool]string{true: ", gone at write ", false: ", come at write "}[goes]+strconv.Itoa(write), during)
				if fs.writes > 0 { // the change has fewer writes
					break
				}
			}
		}
	}
}

// changesDuringHotplug wants that a change is complete, or undone in the caches that remain, and that one repair is enough after it.
func changesDuringHotplug(t *testing.T, b *Backend, fs *sim.FS, then string) {
	before := schemataIn(t, fs)
	err := b.Apply(t.Context(), parse(t, then))
	if errors.Is(err, ErrRollback) {
		t.Error(err)
	}
	if err != nil {
		for group, text := range schemataIn(t, fs) {
			was, is := schemataOf(t, before[group]), schemataOf(t, text)
			if diff := cmp.Diff(was.RestrictedTo(is), is.RestrictedTo(was)); diff != "" {
				t.Errorf("group %s after a failed change (-before +after):\n%s", group, diff)
			}
		}
	}
	repair(t, b)
	wantNoDrift(t, b)
}
