// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/blockio"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// blockioFiles has three classes, which set different limits and weights on different disks.
const blockioFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio:
    Classes:
      first: [{Weight: 300}, {Devices: [/dev/sda, /dev/sdb], ThrottleReadBps: 1M, ThrottleWriteIOPS: 50, Weight: 500}]
      second: [{Devices: [/dev/sdc], ThrottleReadBps: 2M, Weight: 700}]
      third: [{Weight: 200}, {Devices: [/dev/sda], ThrottleReadBps: 10M, Weight: 50}]
`

// blockioMachine is a machine with three disks whose I/O scheduler supports weights.
type blockioMachine struct {
	*machine
	legacy bool // cgroup v1
}

// These are values of the parameter `legacy` of newBlockIOMachine.
const cgroupV2, cgroupV1 = false, true

// newBlockIOMachine returns a machine on which a container runs in the given class.
func newBlockIOMachine(t *testing.T, legacy bool, class string) *blockioMachine {
	t.Helper()
	m := simcgroup.New()
	if legacy {
		m = simcgroup.NewLegacy()
	}

	for i, name := range []string{"sda", "sdb", "sdc"} {
		m.AddDisk(name, 8, uint32(16*i))
		if err := m.WriteFile("/sys/block/"+name+"/queue/scheduler", []byte("bfq")); err != nil {
			t.Fatal(err)
		}
	}

	m.AddCgroup(machinePath)

	on := func(host crashHost) classes.Kind {
		return blockio.Kind(ioapply.New(ioapply.Options{FS: host, Tree: treeOf(t, host), Log: slog.New(slog.DiscardHandler)}))
	}

	f := &blockioMachine{newMachine(t, sim.New(sim.Options{Cgroups: m}), on, blockioFiles, "blockio="+class), legacy}
	f.runtime = f
	f.restart(t)
	f.Synchronize(nil, nil)
	if err := m.SetUnified(machinePath, f.create(t, 1).Unified()); err != nil {
		t.Fatal(err)
	}

	f.start(t)
	return f
}

// SetUnified implements reconcile.Runtime. The simulated runtime is a process of its own, so it writes all files even
// if the plugin is killed.
func (f *blockioMachine) SetUnified(_ context.Context, _ string, unified map[string]string) error {
	f.killer.step()
	defer f.killer.step()
	return f.host.Cgroups().SetUnified(machinePath, unified)
}

// files returns the I/O files of the container's cgroup, with their contents.
func (f *blockioMachine) files(t *testing.T) map[string]string {
	t.Helper()
	dir := "/sys/fs/cgroup" + machinePath
	if f.legacy {
		dir = "/sys/fs/cgroup/blkio" + machinePath
	}

	names, err := f.host.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	files := map[string]string{}
	for _, name := range names {
		if !strings.HasPrefix(name, "io.") && !strings.HasPrefix(name, "blkio.") {
			continue
		}
		data, err := f.host.ReadFile(dir + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}

	return files
}

// TestACrashDuringAnUpdateLeavesNoValuesOfOtherClasses kills the plugin before and after every write of the last
// update. With cgroup v1, the plugin itself writes one file after another.
func TestACrashDuringAnUpdateLeavesNoValuesOfOtherClasses(t *testing.T) {
	for _, test := range []struct {
		name    string
		legacy  bool
		updates []string // the container is created in class first
	}{
		{"the second update with cgroup v2", cgroupV2, []string{"second", "third"}},
		{"the first update", cgroupV1, []string{"third"}},
		{"the second update, to the system default", cgroupV1, []string{"second", ""}},
		{"the second update, back to the class of its creation", cgroupV1, []string{"second", "first"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := newBlockIOMachine(t, test.legacy, test.updates[len(test.updates)-1]).files(t)
			n := 1
			for ; killBlockIOAt(t, n, test.legacy, test.updates, want); n++ {
			}
			if n < 3 {
				t.Errorf("the process has only %d steps", n-1)
			}
		})
	}
}

// changedFiles has the classes of blockioFiles with limits on other disks, and without weights.
const changedFiles = `
apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/blockio
  blockio:
    Classes:
      first: []
      second: [{Devices: [/dev/sda], ThrottleReadBps: 3M}]
      third: []
`

// TestAfterACrashAndAChangeOfClassesNoFormerValueStays kills the plugin at every step of an update by the runtime, and changes the class
// files before the next process starts. The plugin saves class second before the first step, so each next process enforces this class.
func TestAfterACrashAndAChangeOfClassesNoFormerValueStays(t *testing.T) {
	changed := newBlockIOMachine(t, cgroupV2, "second")
	changed.text = changedFiles
	changed.recover(t)
	want := changed.files(t)

	for n, died := 1, true; died; n++ {
		f := newBlockIOMachine(t, cgroupV2, "first")
		*f.killer = killer{at: n}
		died = !f.killer.survives(func() {
			if err := f.Update(t.Context(), ownerA, map[string]string{"blockio": "second"}); err != nil {
				t.Error(err)
			}
		})
		*f.killer = killer{}
		f.text = changedFiles
		f.recover(t)
		if diff := cmp.Diff(want, f.files(t)); diff != "" {
			t.Errorf("killed at step %d: the container in class %q has (-want +got):\n%s", n, f.class(t), diff)
		}
	}
}

// TestTheValuesOfTheCreationAreReplacedIfTheClassChangesBeforeTheStart: only the runtime has written the former values.
func TestTheValuesOfTheCreationAreReplacedIfTheClassChangesBeforeTheStart(t *testing.T) {
	f := newBlockIOMachine(t, cgroupV2, "second")
	const path = "/kubepods/poduid-a/c2"
	f.host.Cgroups().AddCgroup(path)
	f.ctr.ID, f.ctr.CgroupsPath = "c2", path
	if err := f.host.Cgroups().SetUnified(path, f.create(t, 2).Unified()); err != nil {
		t.Fatal(err)
	}
	f.mustConfigure(t, changedFiles) // class second now limits the disk 8:0 instead of 8:32
	f.start(t)

	got, err := f.host.ReadFile("/sys/fs/cgroup" + path + "/io.max")
	if want := "8:0 rbps=3000000 wbps=max riops=max wiops=max\n"; string(got) != want || err != nil {
		t.Errorf("io.max is %q, %v; want %q", got, err, want)
	}
}

// TestALimitThatAnotherProgramSetAfterAnUpdateStays changes a container from class first, which limits the disk 8:0, to
// second, which does not. Another program then limits this disk. The next update removes only the values of class second.
func TestALimitThatAnotherProgramSetAfterAnUpdateStays(t *testing.T) {
	f := newBlockIOMachine(t, cgroupV2, "first")
	for _, class := range []string{"second", ""} {
		if err := f.Update(t.Context(), ownerA, map[string]string{"blockio": class}); err != nil {
			t.Fatal(err)
		}
		if class == "second" {
			if err := f.host.WriteFile("/sys/fs/cgroup"+machinePath+"/io.max", []byte("8:0 rbps=7000000")); err != nil {
				t.Fatal(err)
			}
		}
	}
	const want = "8:0 rbps=7000000 wbps=max riops=max wiops=max\n"
	if got := f.files(t)["io.max"]; got != want {
		t.Errorf("io.max is %q, want %q", got, want)
	}
}

// killBlockIOAt kills the process at step `n` of the last update, and reports whether there was such a step. After the recovery, the
// container must have the class of the last update, and the I/O files `want`.
func killBlockIOAt(t *testing.T, n int, legacy bool, updates []string, want map[string]string) (died bool) {
	t.Helper()
	f, last := newBlockIOMachine(t, legacy, "first"), len(updates)-1
	for i, class := range updates {
		*f.killer = killer{}
		if i == last {
			f.killer.at = n
		}
		died = !f.killer.survives(func() {
			if err := f.Update(t.Context(), ownerA, map[string]string{"blockio": class}); err != nil {
				t.Error(err)
			}
		})
	}

	*f.killer = killer{}
	f.recover(t)
	if got := f.class(t); got != updates[last] {
		t.Errorf("killed at step %d: the container is in class %q", n, got)
	}

	if diff := cmp.Diff(want, f.files(t)); diff != "" {
		t.Errorf("killed at step %d: in class %q it has (-want +got):\n%s", n, updates[last], diff)
	}

	return died
}
