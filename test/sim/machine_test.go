// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
	kernelresctrl "github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

var _ interface {
	kernelresctrl.FS
	iodisks.FS
	cgroup.FS
	nriruntime.OCI
} = (*sim.Machine)(nil)

const (
	gold   = resctrl.MountPoint + "/qos-gold"
	dir    = "/sys/fs/cgroup/kubepods/pod1/c1"
	limits = "254:0 rbps=1000000 wbps=max riops=max wiops=max"
)

// newMachine returns a machine on which resctrl is mounted and has one group.
func newMachine(t *testing.T) *sim.Machine {
	t.Helper()
	spec := resctrl.IntelSpec()
	m := sim.New(sim.Options{RDT: &spec})
	check(t, m.Mkdir(gold))
	check(t, m.MakePodCgroup("/kubepods/pod1"))
	return m
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func spec() nriruntime.Spec {
	return nriruntime.Spec{ID: "c1", CgroupsPath: "/kubepods/pod1/c1", ClosID: "qos-gold", Unified: map[string]string{"io.max": limits}}
}

func create(t *testing.T, m *sim.Machine, spec nriruntime.Spec) int {
	t.Helper()
	pid, err := m.Create(t.Context(), spec)
	check(t, err)
	return pid
}

func want(t *testing.T, m *sim.Machine, file, text string) {
	t.Helper()
	data, err := m.ReadFile(file)
	check(t, err)
	if diff := cmp.Diff(text, string(data)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func TestAProcessIsInItsCgroupAndItsGroupAtOnce(t *testing.T) {
	m := newMachine(t)
	pid := create(t, m, spec())
	child, err := m.Fork("c1", pid)
	check(t, err)
	want(t, m, dir+"/io.max", limits+"\n")
	want(t, m, dir+"/cgroup.procs", fmt.Sprintf("%d\n%d\n", pid, child))
	want(t, m, gold+"/tasks", fmt.Sprintf("%d\n%d\n", pid, child))
	for _, p := range []int{pid, child} {
		want(t, m, fmt.Sprintf("/proc/%d/cpu_resctrl_groups", p), "res:qos-gold\nmon:\n")
		want(t, m, fmt.Sprintf("/proc/%d/cgroup", p), "0::/kubepods/pod1/c1\n")
	}
}

// TestAnExecutedProcessStartsInTheGroupOfTheSpec: as with runc, this is so even if the container's other processes were
// moved to another group.
func TestAnExecutedProcessStartsInTheGroupOfTheSpec(t *testing.T) {
	m := newMachine(t)
	pid := create(t, m, spec())
	check(t, m.Mkdir(resctrl.MountPoint+"/qos-bronze"))
	check(t, m.WriteFile(resctrl.MountPoint+"/qos-bronze/tasks", fmt.Append(nil, pid)))
	late, err := m.Exec(t.Context(), spec())
	check(t, err)
	want(t, m, resctrl.MountPoint+"/qos-bronze/tasks", fmt.Sprintln(pid))
	want(t, m, gold+"/tasks", fmt.Sprintln(late))
}

func TestARefusedCreationLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*nriruntime.Spec)
		errno  syscall.Errno
	}{
		"a group that does not exist": {func(s *nriruntime.Spec) { s.ClosID = "qos-none" }, syscall.ENOENT},
		"a device that is gone":       {func(s *nriruntime.Spec) { s.Unified["io.max"] = limits + "\n9:9 rbps=1000" }, syscall.ENODEV},
	} {
		t.Run(name, func(t *testing.T) {
			m, s := newMachine(t), spec()
			test.change(&s)
			if _, err := m.Create(t.Context(), s); !errors.Is(err, test.errno) {
				t.Errorf("got %v, want %v", err, test.errno)
			}
			if _, err := m.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after a failed Create, reading the cgroup returned %v, want that it does not exist", err)
			}
			check(t, m.Delete(t.Context(), "c1"))
			check(t, m.RemovePodCgroup("/kubepods/pod1"))
		})
	}
}

func TestAnExecutedProcessIsInTheRootGroupIfItsGroupIsGone(t *testing.T) {
	m := newMachine(t)
	create(t, m, spec())
	check(t, m.Remove(gold))
	pid, err := m.Exec(t.Context(), spec())
	if group := m.Resctrl().GroupOf(pid); err != nil || group != "" {
		t.Errorf("Exec returned %v, and the process is in the group %q, want the root group", err, group)
	}
}

func TestADeletedContainerLeavesNothing(t *testing.T) {
	for name, machine := range map[string]*simcgroup.Machine{"v1": simcgroup.NewLegacy(), "hybrid": simcgroup.NewHybrid(), "v2": nil /* the default */} {
		t.Run(name, func(t *testing.T) {
			rdtSpec := resctrl.IntelSpec()
			m := sim.New(sim.Options{RDT: &rdtSpec, Cgroups: machine})
			check(t, m.MakePodCgroup("/kubepods/pod1"))
			s := spec()
			s.ClosID, s.Unified, s.Monitoring = "", nil, true
			pid := create(t, m, s)
			want(t, m, resctrl.MountPoint+"/mon_groups/c1/tasks", fmt.Sprintln(pid))
			check(t, m.Delete(t.Context(), "c1"))
			check(t, m.Delete(t.Context(), "c1")) // runtimes may delete a container again
			check(t, m.RemovePodCgroup("/kubepods/pod1"))
			for _, file := range []string{fmt.Sprintf("/proc/%d/cgroup", pid), fmt.Sprintf("/proc/%d/stat", pid), resctrl.MountPoint + "/mon_groups/c1/tasks"} {
				if _, err := m.ReadFile(file); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("reading %s of a deleted container returned %v, want that it does not exist", file, err)
				}
			}
		})
	}
}

func TestAnUpdateWritesTheGivenLimits(t *testing.T) {
	m := newMachine(t)
	create(t, m, spec())
	check(t, m.Update(t.Context(), "c1", map[string]string{"io.max": "254:0 rbps=max\n254:16 wbps=5000"}))
	// 254:0 had only a limit of rbps, so its line is gone.
	want(t, m, dir+"/io.max", "254:16 rbps=max wbps=5000 riops=max wiops=max\n")

	// An update needs a container.
	if err := m.Update(t.Context(), "c2", nil); !errors.Is(err, sim.ErrNoContainer) {
		t.Errorf("update of a container that does not exist: %v", err)
	}
}

// TestARuntimeRunsOnTheMachine runs a pod with the test runtime on the machine, with each of the two cgroup drivers.
func TestARuntimeRunsOnTheMachine(t *testing.T) {
	for name, systemd := range map[string]bool{"cgroupfs": false, "systemd": true} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "sim")
			check(t, err)
			defer os.RemoveAll(dir)
			m := newMachine(t)
			r, err := nriruntime.New(dir, nriruntime.Options{OCI: m, SystemdCgroups: systemd})
			check(t, err)
			check(t, r.Start())
			defer r.Stop()
			pod, err := r.RunPod(t.Context(), nriruntime.PodConfig{Name: "pod", UID: "7"})
			check(t, err)
			id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
			check(t, err)
			check(t, r.StartContainer(t.Context(), id))
			c, err := r.Container(id)
			check(t, err)
			where, err := m.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID))
			check(t, err)
			if !strings.Contains(string(where), id) {
				t.Errorf("process %d is in %s", c.PID, where)
			}

			check(t, r.RemovePod(t.Context(), pod))
		})
	}
}

func TestTheSimulatedMachineHasResctrlCgroupsAndDisks(t *testing.T) {
	m := sim.New(sim.Options{})
	for _, filesystem := range []string{"resctrl", "cgroup2"} {
		data, err := m.ReadFile("/proc/filesystems")
		if err != nil || !strings.Contains(string(data), "nodev\t"+filesystem+"\n") {
			t.Errorf("no %s in %q, %v", filesystem, data, err)
		}
	}

	if _, err := m.ReadFile("/proc/sys/kernel/random/boot_id"); err != nil {
		t.Error(err)
	}

	check(t, m.Mount("resctrl", resctrl.MountPoint, "resctrl", ""))
	check(t, m.Mkdir(gold))
	check(t, m.Mkdir(gold+"/mon_groups/m"))
	check(t, m.Rename(gold+"/mon_groups/m", resctrl.MountPoint+"/mon_groups/m"))
	if err := m.Rename("/sys/fs/cgroup/a", "/sys/fs/cgroup/b"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("renaming a cgroup: %v", err)
	}

	if _, _, err := m.BlockDevice("/dev/vda"); err != nil {
		t.Error(err)
	}

	matches, err := m.Glob("/dev/vd?")
	if diff := cmp.Diff([]string{"/dev/vda", "/dev/vdb"}, matches); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
