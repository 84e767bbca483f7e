// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/child"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

var kernel = flag.String("kernel", "", "run on this machine's own resctrl, which must be unmounted, as one of: intel, intel-cdp, intel-mbps, amd, arm")

// kernelSpec returns the simulated machine that the flag -kernel names. That machine must
// resemble the real machine on which the test runs. Without the flag, kernelSpec skips the test.
func kernelSpec(t *testing.T) sim.Spec {
	t.Helper()
	if *kernel == "" {
		t.Skip("changes this machine's resctrl; give -kernel for that")
	}
	spec := sim.IntelSpec()
	switch *kernel {
	case "amd":
		spec = sim.AMDSpec()
	case "arm":
		spec = sim.ArmSpec(8)
		spec.L3.Domains = nil // the emulated MPAM has the same IDs for L3 and MB
	}
	spec.Options = map[string]string{"intel-cdp": "cdp", "intel-mbps": "mba_MBps"}[*kernel]
	return spec
}

// processes has the PIDs of real processes. It implements Threads.
type processes []int

func (p processes) Threads(classes.Holder) ([]int, error) {
	var tids []int
	for _, pid := range p {
		names, err := hostfs.Root("/").ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			tid, err := strconv.Atoi(name)
			if err != nil {
				return nil, err
			}
			tids = append(tids, tid)
		}
	}

	return tids, nil
}

func sleeping(t testing.TB) int {
	t.Helper()
	sleep := child.Command(t, "sleep", "10000")
	must(t, sleep.Start())
	t.Cleanup(func() { _ = sleep.Process.Kill(); _ = sleep.Wait() })
	return sleep.Process.Pid
}

// filesOf returns the files of some groups.
func filesOf(t *testing.T, groups ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, group := range groups {
		for _, file := range []string{"schemata", "mode", "cpus", "tasks", "mon_groups/m/tasks"} {
			text, err := os.ReadFile(filepath.Join(sim.MountPoint, group, file))
			if err == nil {
				files[group+"/"+file] = string(text)
			}
		}
	}
	return files
}

func kernelSchemata(t *testing.T) map[string]string {
	t.Helper()
	m, err := readMachine(resctrl.At(hostfs.Root("/"), sim.MountPoint))
	must(t, err)
	texts := map[string]string{}
	for name, group := range m.groups {
		texts[name] = group.Schemata.String()
	}
	return texts
}

// TestOnTheKernel applies configurations one after another on this machine and on the simulated one, and compares the groups. In the end,
// the group `theirs` of another program must be as before.
func TestOnTheKernel(t *testing.T) {
	spec := kernelSpec(t)
	must(t, unix.Mount("resctrl", sim.MountPoint, "resctrl", 0, spec.Options))
	defer func() { must(t, unix.Unmount(sim.MountPoint, 0)) }()
	host := hostfs.Root("/")
	must(t, host.Mkdir(sim.MountPoint+"/theirs"))
	must(t, host.WriteFile(sim.MountPoint+"/theirs/schemata", []byte("L2:0=f;1=ff\n")))
	must(t, host.Mkdir(sim.MountPoint+"/theirs/mon_groups/m"))
	must(t, host.WriteFile(sim.MountPoint+"/theirs/mon_groups/m/tasks", nil))
	their := sleeping(t)
	must(t, host.WriteFile(sim.MountPoint+"/theirs/tasks", []byte(strconv.Itoa(their))))
	foreign := filesOf(t, "theirs")

	simulated := sim.New(spec)
	must(t, simulated.Mkdir(sim.MountPoint+"/theirs"))
	must(t, simulated.WriteFile(sim.MountPoint+"/theirs/schemata", []byte("L2:0=f;1=ff\n")))
	reference := newBackend(simulated, nil)

	pids := processes{sleeping(t), sleeping(t)}
	b := newBackend(host, pids)
	for _, config := range []string{twoPartitions, others, "", twoPartitions} {
		must(t, b.Check(t.Context(), parse(t, config)))
		apply(t, b, config)
		apply(t, reference, config)
		if diff := cmp.Diff(schemataIn(t, simulated), kernelSchemata(t)); diff != "" {
			t.Errorf("-simulation +kernel:\n%s", diff)
		}
	}

	t.Run("measures classes", func(t *testing.T) { measuresClasses(t, b) })
	t.Run("moves processes", func(t *testing.T) { movesProcesses(t, b, pids) })
	t.Run("refuses and rolls back", func(t *testing.T) { refusesAndRollsBack(t, b) })
	removeClasses(t, b)
	if diff := cmp.Diff(foreign, filesOf(t, "theirs")); diff != "" || len(foreign) != 5 { // filesOf skips files that it cannot read
		t.Errorf("foreign groups: %s (%d files)", diff, len(foreign))
	}

	if left := kernelSchemata(t); len(left) != 2 {
		t.Errorf("the groups at the end are %v, want only the root group and theirs", left)
	}
}

// TestMountingOnTheKernel lets the backend mount resctrl, and checks which mount options the
// backend chooses for each configuration.
func TestMountingOnTheKernel(t *testing.T) {
	spec := kernelSpec(t)
	spec.Options, spec.Unmounted = "", true
	host := hostfs.Root("/")
	for config, options := range mountOptionsFor() {
		simulated := sim.New(spec)
		want := newBackend(simulated, nil).Apply(t.Context(), parse(t, config))
		b := newBackend(host, nil)
		err := b.Apply(t.Context(), parse(t, config))
		if diff := cmp.Diff(reasonOf(want), reasonOf(err)); diff != "" {
			t.Errorf("%s: -simulation +kernel: %s\n%v", config, diff, err)
		}
		mount, findErr := resctrl.Find(host)
		if (findErr == nil) == (want != nil) {
			t.Errorf("%s: the search for resctrl returned %v, but the simulation returned %v", config, findErr, want)
		}
		if findErr != nil {
			continue
		}
		options = strings.Replace(options, "rw,", "rw,nosuid,nodev,noexec,", 1) // hostfs adds these options to each mount
		if got := strings.Join(mount.Options(), ","); got != options {
			t.Errorf("%s\nresctrl is mounted with %s, want %s", config, got, options)
		}
		if diff := cmp.Diff(schemataIn(t, simulated), kernelSchemata(t)); diff != "" {
			t.Errorf("%s: -simulation +kernel:\n%s", config, diff)
		}
		must(t, unix.Unmount(sim.MountPoint, 0))
	}
}

// reasonOf returns the reason of a *classes.Unavailable error, and the text of any other error.
func reasonOf(err error) string {
	if unavailable := (*classes.Unavailable)(nil); errors.As(err, &unavailable) {
		return unavailable.Reason
	}
	return fmt.Sprint(err)
}

// measuresClasses compares the usage of classes with the counters of their groups. The bandwidth counters grow all the time.
// The growth of a counter is measured over a longer time than the growth of the usage, so it may be larger.
func measuresClasses(t *testing.T, b *Backend) {
	total := classes.Series{Measure: "memory_bandwidth_bytes_total", Part: "1"}
	for _, class := range []string{"gold", "bronze", classes.SystemDefault} {
		group := filepath.Join(sim.MountPoint, groups.Of(class), "mon_data")
		counted := func(file string) float64 {
			data, err := os.ReadFile(filepath.Join(group, file))
			must(t, err)
			value, ok := resctrl.ParseCounter(data)
			if !ok {
				t.Fatalf("%s of class %q is %q", file, class, data)
			}
			return float64(value)
		}

		before := counted("mon_L3_01/mbm_total_bytes")
		first := measured(t, b, class)
		last := measured(t, b, class)
		for last[total] == first[total] {
			last = measured(t, b, class)
		}
		if grown, most := last[total]-first[total], counted("mon_L3_01/mbm_total_bytes")-before; grown < 0 || grown > most {
			t.Errorf("the bandwidth of class %q has grown by %v bytes, but the kernel's counter by %v", class, grown, most)
		}
		occupancy := last[classes.Series{Measure: "llc_occupancy_bytes", Part: "0"}]
		if want := counted("mon_L3_00/llc_occupancy"); occupancy != want || want == 0 {
			t.Errorf("class %q occupies %v bytes, want %v", class, occupancy, want)
		}
	}
}

func movesProcesses(t *testing.T, b *Backend, pids processes) {
	target := classes.Holder{PID: pids[0]}
	previous := ""
	for _, class := range []string{"gold", "bronze", ""} {
		must(t, b.Enforce(t.Context(), target, previous, class))
		for _, pid := range pids {
			got, err := b.Observe(t.Context(), classes.Holder{PID: pid}, "")
			if got.Class != class || !got.Known || err != nil {
				t.Errorf("process %d is in %+v, %v", pid, got, err)
			}
		}
		previous = class
	}

	for range 2 { // the first call moves the processes, and the second call finds nothing to move
		must(t, b.Enforce(t.Context(), starting(pids[0]), "bronze", "bronze"))
	}

	must(t, b.Enforce(t.Context(), target, "bronze", ""))
}

// refusesAndRollsBack applies a configuration with too many classes. It first hides this problem from the backend's
// checks, so that the kernel refuses the configuration.
func refusesAndRollsBack(t *testing.T, b *Backend) {
	before := kernelSchemata(t)
	hidden := newBackend(hiding{hostfs.Root("/")}, nil)
	err := hidden.Apply(t.Context(), parse(t, manyClasses(20)))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "kernel: Out of CLOSIDs") {
		t.Errorf("got %v", err)
	}

	if diff := cmp.Diff(before, kernelSchemata(t)); diff != "" {
		t.Error(diff)
	}

	err = b.Apply(t.Context(), parse(t, manyClasses(30)))
	if !errors.Is(err, ErrNoCLOSID) || !strings.Contains(err.Error(), "groups of other programs (theirs) use 1") {
		t.Errorf("got %v", err)
	}

	if !slices.Contains(b.live.Load().offered, "gold") {
		t.Error("after a refused configuration, the previous one is not live")
	}
}

// hiding is the host's filesystem, but with more CLOSIDs in num_closids than the CPU has. The CPU has as many RMIDs.
type hiding struct{ hostfs.Root }

func (h hiding) ReadFile(path string) ([]byte, error) {
	if strings.HasSuffix(path, "/num_closids") {
		return []byte("32\n"), nil
	}
	return h.Root.ReadFile(path)
}
