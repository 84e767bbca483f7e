// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	"github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

var _ invariant.FS = hostfs.Root("/")

const mount = resctrl.MountPoint

// newMachine returns a machine with the group of a class, and with a group of another program that has a monitoring
// group.
func newMachine(t *testing.T, cgroups *cgroup.Machine) *sim.Machine {
	t.Helper()
	spec := resctrl.IntelSpec()
	m := sim.New(sim.Options{RDT: &spec, Cgroups: cgroups})
	if cgroups != nil {
		cgroups.AddDisk("vda", 254, 0)
	}
	for _, group := range []string{"qos-gold", "theirs", "theirs/mon_groups/watched"} {
		must(t, m.Mkdir(mount+"/"+group))
	}
	must(t, m.WriteFile(mount+"/qos-gold/schemata", []byte("L3:0=f\n")))
	return m
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheKernelIsReadWithAllVersionsOfCgroups(t *testing.T) {
	for name, test := range map[string]struct {
		cgroups *cgroup.Machine
		root    string
		file    string
	}{
		"v2":                               {nil, "/sys/fs/cgroup", "io.max"},
		"v1":                               {cgroup.NewLegacy(), "/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device"},
		"v1 beside v2":                     {cgroup.NewHybrid(), "/sys/fs/cgroup/blkio", "blkio.throttle.read_bps_device"},
		"v1, with the io controller in v2": {cgroup.NewHybridIO(), "/sys/fs/cgroup/unified", "io.max"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, test.cgroups)
			must(t, m.MakePodCgroup("/kubepods/pod1"))
			pid, err := m.Create(t.Context(), nriruntime.Spec{ID: "c1", CgroupsPath: "/kubepods/pod1/c1", ClosID: "qos-gold"})
			must(t, err)
			child, err := m.Fork("c1", pid)
			must(t, err)
			value := map[string]string{"io.max": "254:0 rbps=7 wbps=max riops=max wiops=max\n"}[test.file]
			if value == "" {
				value = "254:0 7\n"
			}

			must(t, m.WriteFile(test.root+"/kubepods/pod1/c1/"+test.file, []byte(value)))

			got, err := invariant.KernelOf(m, invariant.Live{
				Pods:       []invariant.Pod{{ID: "pod", Cgroup: "/kubepods/pod1"}},
				Containers: []invariant.Container{{ID: "c1", Cgroup: "/kubepods/pod1/c1"}, {ID: "gone", Cgroup: "/kubepods/pod1/gone"}},
			})

			must(t, err)
			if diff := cmp.Diff([]int{pid, child}, got.Cgroups["c1"].Threads); diff != "" {
				t.Errorf("threads of the container (-want +got):\n%s", diff)
			}

			if diff := cmp.Diff([]int{pid, child}, got.Cgroups["pod"].Threads); diff != "" {
				t.Errorf("threads of the pod (-want +got):\n%s", diff)
			}

			if diff := cmp.Diff([]int{pid, child}, got.Groups["qos-gold"].Tasks); diff != "" {
				t.Errorf("threads of the group (-want +got):\n%s", diff)
			}

			if got := got.Cgroups["c1"].Files[test.file]; got != value {
				t.Errorf("%s is %q, want %q", test.file, got, value)
			}

			if _, there := got.Cgroups["gone"]; there || len(got.Groups) != 3 { // the root group, qos-gold and theirs
				t.Errorf("the cgroups are %v, the groups %v", got.Cgroups, got.Groups)
			}
		})
	}
}

func TestWithoutResctrlThereAreNoGroups(t *testing.T) {
	got, err := invariant.KernelOf(sim.New(sim.Options{}), invariant.Live{})
	if err != nil || got.Groups != nil {
		t.Errorf("the groups are %v, with the error %v", got.Groups, err)
	}
	foreign, err := invariant.ForeignOf(sim.New(sim.Options{}))
	if err != nil || len(foreign) != 0 {
		t.Errorf("the foreign files are %v, with the error %v", foreign, err)
	}
}

func TestEverythingExceptOurGroupsIsForeign(t *testing.T) {
	m := newMachine(t, nil)
	must(t, m.MakePodCgroup("/theirs"))
	const limits = "/sys/fs/cgroup/theirs/io.max"
	read := func() map[string]string {
		t.Helper()
		found, err := invariant.ForeignOf(m, limits)
		must(t, err)
		return found
	}

	before := read()
	for _, ours := range [][2]string{{"/qos-gold/schemata", "L3:0=1\n"}, {"/qos-gold/mode", "shareable\n"}} {
		must(t, m.WriteFile(mount+ours[0], []byte(ours[1])))
	}

	_, err := m.Create(t.Context(), nriruntime.Spec{ID: "c1", CgroupsPath: "/kubepods/pod1/c1", ClosID: "qos-gold"})
	must(t, err)
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Errorf("groups of the plugin are reported as foreign:\n%s", diff)
	}

	m.Resctrl().AddTask(1, "theirs/mon_groups/watched")
	for file, data := range map[string]string{
		mount + "/schemata": "L3:0=fff\nMB:0=50\n", mount + "/theirs/schemata": "L3:0=f0\n", mount + "/theirs/cpus": "1\n", limits: "254:0 rbps=5\n",
	} {
		must(t, m.WriteFile(file, []byte(data)))
	}

	after := read()
	changed := 0
	for file := range after {
		if before[file] != after[file] {
			changed++
		}
	}

	// Besides the four written files, three files change: the CPUs of the root group, the tasks of the group theirs, and
	// the tasks of its monitoring group.
	if changed != 7 {
		t.Errorf("%d files changed, want 7:\n%s", changed, cmp.Diff(before, after))
	}

	must(t, m.Remove(mount+"/theirs"))
	if got := read(); len(got) >= len(after) {
		t.Errorf("after the removal of the group theirs, the foreign files are %v, want fewer than before", got)
	}
}
