// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// mountNewer mounts the resctrl of a kernel with some options, or skips the test if there is no such file below info/.
func mountNewer(t *testing.T, needs, options string) hostfs.Root {
	t.Helper()
	if *kernel == "" {
		t.Skip("changes this machine's resctrl; give -kernel for that")
	}
	must(t, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, options))
	t.Cleanup(func() { must(t, unix.Unmount(sim.MountPoint, 0)) })
	if _, err := os.Stat(filepath.Join(sim.MountPoint, "info", needs)); err != nil {
		t.Skip("this kernel or CPU lacks it: ", err)
	}
	return "/"
}

// TestDeviceTrafficOfTheKernel needs io_alloc (AMD, Linux 6.19). Device traffic that another program limits uses one of the 16
// CLOSIDs. A class file can set its masks, and without the field, io_alloc is disabled again.
func TestDeviceTrafficOfTheKernel(t *testing.T) {
	host := mountNewer(t, "L3/io_alloc", "")
	b := newBackend(host, nil)
	offered := func(n int) *Config { return parse(t, manyClasses(n)) }
	must(t, b.Check(t.Context(), offered(15)))

	must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("1\n")))
	must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc_cbm", []byte("0=f;1=f\n")))
	err := b.Check(t.Context(), offered(15))
	want := "15 classes are 1 too many: the CPU has 16 CLOSIDs, of which resctrl's root group uses 1, device traffic (io_alloc) uses 1; "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("check: %v", err)
	}
	must(t, b.Apply(t.Context(), offered(14)))
	if err := host.Mkdir(sim.MountPoint + "/another"); err == nil {
		t.Error("the kernel makes one more group, although no CLOSID is free")
	}
	// The classes have the whole cache, so they share the bits f with device traffic.
	if got := conditionOf(b.Status(), ConditionOwnCache); got.Reason == "" || !strings.Contains(got.Message, "io_alloc_cbm") {
		t.Errorf("the condition is %+v", got)
	}
	removeClasses(t, b)
	must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("0\n")))

	devices := func(file string) string {
		t.Helper()
		text, err := host.ReadFile(sim.MountPoint + "/info/L3/" + file)
		must(t, err)
		return strings.TrimSpace(string(text))
	}
	apply(t, b, withDevices(`"20%"`))
	if got, full := devices("io_alloc_cbm"), devices("cbm_mask"); got == "" || strings.Contains(got, "="+full) {
		t.Errorf("device traffic has the masks %q of %s", got, full)
	}
	wantNoDrift(t, b) // the kernel has kept the masks
	t.Logf("device traffic: %s; classes: %v", devices("io_alloc_cbm"), b.Schemata())
	apply(t, b, twoPartitions)
	if got := devices("io_alloc"); got != "disabled" {
		t.Errorf("without the field, io_alloc is %s", got)
	}
	removeClasses(t, b)
}

// TestAssignableCountersOfTheKernel needs ABMC (AMD, Linux 6.18). It starts 6 containers, for which there are 4 of 8 counters: the root
// group has two, and two classes have one each. Then it tries each mode of the kernel. After a switch, the root group has one.
func TestAssignableCountersOfTheKernel(t *testing.T) {
	host := mountNewer(t, "L3_MON/available_mbm_cntrs", "")
	var pids processes
	var containers []classes.Holder
	for i := range 6 {
		pid := sleeping(t)
		pids = append(pids, pid)
		containers = append(containers, classes.Holder{ID: fmt.Sprint("c", i+1), Container: "main", PID: pid})
	}
	b := newBackend(host, &several{})
	apply(t, b, monitorAll)
	for _, pid := range pids {
		must(t, host.WriteFile(sim.MountPoint+"/qos-gold/tasks", []byte(strconv.Itoa(pid))))
	}
	b.MonitorAll(t.Context(), inClass("gold", containers...))
	wantCounters(t, host, b, containers, 2)

	const mode = sim.MountPoint + "/info/L3_MON/mbm_assign_mode"
	text, err := host.ReadFile(mode)
	must(t, err)
	modes := strings.Fields(strings.NewReplacer("[", "", "]", "").Replace(string(text)))
	t.Logf("modes of this kernel: %v", modes)
	switchTo := func(name string) {
		must(t, host.WriteFile(mode, []byte(name+"\n")))
		repair(t, b)
		b.MonitorAll(t.Context(), inClass("gold", containers...))
	}
	for _, name := range modes {
		if name == "mbm_event" {
			continue
		}
		switchTo(name)
		if condition := monitoredCondition(t, b); !condition.Healthy {
			t.Errorf("in the mode %s, each group has a counter: %+v", name, condition)
		}
		switchTo("mbm_event") // the kernel has taken all counters away
		wantCounters(t, host, b, containers, 1)
	}

	restarted := newBackend(host, &several{})
	apply(t, restarted, monitorAll)
	restarted.MonitorAll(t.Context(), inClass("gold", containers...))
	wantCounters(t, host, restarted, containers, 1)

	// The kernel frees the counters of ended containers, and the next ones get them.
	restarted.Unmonitor("c1")
	restarted.Unmonitor("c2")
	restarted.MonitorAll(t.Context(), inClass("gold", containers[2:]...))
	wantCounters(t, host, restarted, containers[2:], 0)
}

// wantCounters compares what is reported with the kernel's assignments. The last `lacking` containers have no counters, and the
// others have some.
func wantCounters(t *testing.T, host hostfs.Root, b *Backend, containers []classes.Holder, lacking int) {
	t.Helper()
	for i, c := range containers {
		text, err := host.ReadFile(sim.MountPoint + "/qos-gold/mon_groups/qos-" + c.ID + "/mbm_L3_assignments")
		must(t, err)
		lacks := i >= len(containers)-lacking
		if total, _, _ := strings.Cut(string(text), "\n"); strings.Contains(total, "=_") != lacks || !strings.HasPrefix(total, "mbm_total_bytes:") {
			t.Errorf("%s: the kernel shows %q; want that a counter lacks: %v", c.ID, text, lacks)
		}
		if used := containerUses(t, b, c, "memory_bandwidth_bytes_total"); lacks != (used == nil) {
			t.Errorf("%s has the bandwidth %v, and the kernel shows %q", c.ID, used, text)
		}
	}
	condition, counted := monitoredCondition(t, b), b.Status().Monitored["gold"]
	if condition.Healthy != (lacking == 0) || counted.Missing["NoFreeCounter"] != lacking || counted.Containers != len(containers)-lacking {
		t.Errorf("%d containers have no counter; reported are %+v and %+v", lacking, condition, counted)
	}
}

// TestEnergyOfTheKernel needs telemetry (Intel, Linux 7.0). The kernel does not reset it, so that a new group begins with what its RMID
// has counted before.
func TestEnergyOfTheKernel(t *testing.T) {
	host := mountNewer(t, "PERF_PKG_MON/num_rmids", "")
	pid := sleeping(t)
	b := newBackend(host, processes{pid})
	apply(t, b, featuresMonitored("energy"))
	must(t, host.WriteFile(sim.MountPoint+"/qos-gold/tasks", []byte(strconv.Itoa(pid))))
	c := classes.Holder{ID: "c1", Container: "main", PID: pid}
	b.MonitorAll(t.Context(), inClass("gold", c))

	shown := func() float64 {
		t.Helper()
		text, err := host.ReadFile(sim.MountPoint + "/qos-gold/mon_groups/qos-c1/mon_data/mon_PERF_PKG_00/core_energy")
		must(t, err)
		value, ok := resctrl.ParseCounter(text)
		if !ok {
			t.Fatalf("the kernel shows %q", text)
		}
		return value
	}
	used := func() float64 {
		value, _ := containerUses(t, b, c, "core_joules_total").(float64)
		return value
	}
	begun, before := shown(), used()
	for shown() == begun {
		continue // the emulated CPU counts while time passes
	}
	now := used()
	// The RMID has counted before its group was made (`begun`). The container does not get that, so it has used less than the kernel shows.
	if now <= before || begun == 0 || now >= shown() {
		t.Errorf("the container has used %v J, and %v J before; its RMID has counted %v J, of which %v J before its group", now, before, shown(), begun)
	}
	if got := measured(t, b, "gold")[joules()]; got < now { // the class includes its container
		t.Errorf("the class has used %v J, and its container %v J", got, now)
	}
	t.Logf("measures: %v; the container has used %v J of the %v J that its RMID has counted", measuresOf(measured(t, b, "gold")), now, shown())
	b.Unmonitor("c1")
	removeClasses(t, b)
}

// TestRMIDsOfAClassOfTheKernel needs MPAM with 4 PMGs, so that each class has one RMID for itself, and three for containers.
func TestRMIDsOfAClassOfTheKernel(t *testing.T) {
	// 3 containers of gold and both of bronze have values (""), and 2 of gold have no RMID.
	rmidsOfAClass(t, mountNewer(t, "L3_MON/num_rmids", ""), map[string]int{"": 5, "NoFreeRMIDOfClass": 2})
}

// TestCodeAndDataApartOfTheKernel needs MPAM with 4 PMGs and 8 counters. With code and data apart, the kernel has half of the CLOSIDs, RMIDs
// and counters, and no limit of memory bandwidth (resctrl_arch_set_cdp_enabled in drivers/resctrl/mpam_resctrl.c).
func TestCodeAndDataApartOfTheKernel(t *testing.T) {
	host := mountNewer(t, "L3CODE/num_closids", "cdp")
	// Gold has 3 RMIDs for its 5 containers, and bronze has enough. Of the 4 counters, the root group and the two classes have 3.
	rmidsOfAClass(t, host, map[string]int{"": 1, "NoFreeCounter": 4, "NoFreeRMIDOfClass": 2})
	b := newBackend(host, nil)
	apply(t, b, `{partitions: {p: {l3Allocation: "100%", classes: {a: {l3Allocation: {all: {unified: "100%", code: "50%", data: "25%"}}}}}}}`)
	if got := dividedIn(b)["a"]; got != "L3CODE:0=ff;1=ff L3DATA:0=f;1=f" {
		t.Errorf("the class has %s", got)
	}
	removeClasses(t, b)
}

// rmidsOfAClass starts 5 containers of gold, which has fewer RMIDs, and 2 of bronze. `want` has the number of containers without values by
// reason, and under "" the number of those with values.
func rmidsOfAClass(t *testing.T, host hostfs.Root, want map[string]int) {
	t.Helper()
	b := newBackend(host, &several{})
	apply(t, b, monitorAll+"options: {mb: {optional: true}}\n")
	var running []classes.InClass
	for i, class := range []string{"gold", "gold", "gold", "gold", "gold", "bronze", "bronze"} {
		pid := sleeping(t)
		must(t, host.WriteFile(sim.MountPoint+"/qos-"+class+"/tasks", []byte(strconv.Itoa(pid))))
		running = append(running, inClass(class, classes.Holder{ID: fmt.Sprint("c", i), Container: "main", PID: pid})...)
	}
	monitorUntil(t, host, b, running, func() bool { return maps.Equal(want, namedReasons(t, b)) })
	if diff := cmp.Diff(want, namedReasons(t, b)); diff != "" {
		t.Errorf("containers by reason (-want +got):\n%s", diff)
	}
	t.Log(monitoredCondition(t, b).Message)
	for _, c := range running {
		b.Unmonitor(c.ID)
	}
	removeClasses(t, b)
}

// TestAHundredContainersOnTheKernel needs few RMIDs. Each of 100 containers has values, or a reason why it has none. Then it adds classes,
// which must succeed, and logs how many containers still have values.
func TestAHundredContainersOnTheKernel(t *testing.T) {
	host := mountNewer(t, "L3_MON/num_rmids", "")
	info, _, err := resctrl.At(host, sim.MountPoint).Read()
	must(t, err)
	var want map[string]int
	var more int // classes; with the root group, gold and bronze, they use 15 of 16 CLOSIDs on AMD, and 8 of 8 on Intel
	switch {
	// Of the 8 counters of AMD, the root group has two, and gold and bronze have one each. Of the 32 RMIDs, 16 are reserved for the 16 CLOSIDs.
	case info.AssignsCounters:
		want, more = map[string]int{"": 4, "NoFreeCounter": 12, "NoFreeRMID": 84}, 12
	case info.RMIDs == 12: // Intel, where 8 of them are reserved for the 8 CLOSIDs
		want, more = map[string]int{"": 4, "NoFreeRMID": 96}, 5
	default:
		t.Skipf("the CPU has %d RMIDs", info.RMIDs)
	}

	b := newBackend(host, &several{})
	apply(t, b, monitorAll)
	var running []classes.InClass
	for i := range 100 {
		class, pid := []string{"gold", "bronze"}[i%2], sleeping(t)
		must(t, host.WriteFile(sim.MountPoint+"/qos-"+class+"/tasks", []byte(strconv.Itoa(pid))))
		running = append(running, inClass(class, classes.Holder{ID: fmt.Sprint("c", i), PodUID: fmt.Sprint("p", i), Container: "main", PID: pid})...)
	}
	monitorUntil(t, host, b, running, func() bool { return maps.Equal(want, namedReasons(t, b)) })
	if diff := cmp.Diff(want, namedReasons(t, b)); diff != "" {
		t.Errorf("containers by reason (-want +got):\n%s", diff)
	}
	t.Log(monitoredCondition(t, b).Message)

	var others strings.Builder
	for i := range more {
		fmt.Fprintf(&others, "c%d: {}, ", i)
	}
	text := strings.Replace(monitorAll, "classes: {bronze", "classes: {"+others.String()+"bronze", 1)
	must(t, b.Apply(t.Context(), parse(t, text)))
	b.MonitorAll(t.Context(), running)
	t.Logf("with %d more classes, containers by reason: %v", more, namedReasons(t, b))
}

// namedReasons returns how many containers of the classes gold and bronze have each reason, and "" for those with values.
func namedReasons(t *testing.T, b *Backend) map[string]int {
	t.Helper()
	named := map[string]int{}
	for _, class := range []string{"gold", "bronze"} {
		reading, err := b.MeasureClass(t.Context(), class)
		must(t, err)
		for id, used := range reading.Containers {
			why := ""
			for series := range used {
				if series.Measure == "unmonitored" {
					why = series.Part
				}
			}
			if _, has := used[classes.Series{Measure: "memory_bandwidth_bytes_total", Part: "0"}]; has != (why == "") {
				t.Errorf("%s has the reason %q, and values of memory bandwidth: %v", id, why, has)
			}
			named[why]++
		}
	}
	return named
}
