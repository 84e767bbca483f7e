// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// withoutUpdates returns runtimes that a requested update may hang, so the plugin requests none. The simulated runtimes refuse such updates.
func withoutUpdates() map[string]nriruntime.Options {
	return map[string]nriruntime.Options{
		"containerd 2.3": {Name: "containerd", Version: "v2.3.7-k3s1", UpdatesHang: true},
		"another":        {Name: "other", Version: "9", UpdatesHang: true},
		"CRI-O":          {CRIO: true},
	}
}

// TestClassesChangeWithoutUpdatesOfTheRuntime changes the class of a container, and then resizes the container. The runtime writes all
// values that it has stored when it resizes a container.
func TestClassesChangeWithoutUpdatesOfTheRuntime(t *testing.T) {
	for name, options := range withoutUpdates() {
		t.Run(name, func(t *testing.T) {
			r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, options)
			id := r.mustRun(t, r.pod(t, "a", "rdt=gold,blockio=fast"))
			for _, class := range []string{"slow", "fast", ""} {
				r.change(t, id, disks, class)
				r.wantReported(t, id, disks, class+"/update")
				r.world.Hold(t)
				r.resize(t, id)
				r.world.Hold(t)
			}
		})
	}
}

func TestChangedClassFilesReachContainersWithoutUpdatesOfTheRuntime(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, withoutUpdates()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", "blockio=slow"))
	r.mustConfigure(t, changed("ThrottleReadBps: 1M", "ThrottleReadBps: 2M"))
	r.world.Expect.Limits[disks]["slow"] = map[string]string{"io.max": "254:0 rbps=2000000\n254:16 rbps=2000000"}
	r.world.Hold(t)

	// The runtime still stores the limit of the creation, 1 MB/s. The new limit stays in force after a restart of the runtime, and after a
	// resize, which writes the stored values.
	r.restartRuntime(t)
	r.node.Reconcile(t.Context())
	r.world.Hold(t)
	r.resize(t, id)
	r.world.Hold(t)
}

func TestAChangeOfTheClassSucceedsAlthoughAnEarlierResizeOverwritesItsValues(t *testing.T) {
	m := newMachine(simcgroup.New())
	r := newMachineRigOn(t, m, machineFiles, withoutUpdates()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))
	before := limits()["fast"]["io.max"]

	// On this runtime, the plugin itself writes the values of a changed class. An earlier resize then writes the former values once, between
	// the plugin's write and its verification.
	written := false
	r.host.after(func(path string) {
		if strings.HasSuffix(path, "/io.max") && !written {
			written = true
			if err := m.WriteFile(path, []byte(before)); err != nil {
				t.Error(err)
			}
		}
	})
	r.change(t, id, disks, "slow")
	if !written {
		t.Error("the plugin has not written io.max")
	}
	r.world.Hold(t)
}

func TestTheStatusReportsThatThePluginWritesValuesItself(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, withoutUpdates()["containerd 2.3"])
	want := "Registered with the container runtime. The plugin itself writes the values of changed classes to cgroups, " +
		"because containerd v2.3.7-k3s1 can hang when an NRI plugin requests an update of a container; use containerd 2.4 or later."
	if got := r.registered(t).GetMessage(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAResizeReplacesTheStoredValuesOfAFormerClass uses classes with a part of the memory limit of 1 GiB. Because the plugin requests no
// updates, only a resize, here one of another limit, changes what the runtime has stored.
func TestAResizeReplacesTheStoredValuesOfAFormerClass(t *testing.T) {
	file := profileFile("tight: {memory: {high: 25%}}, loose: {memory: {high: 50%}}")
	r := newMachineRigOn(t, newMachine(simcgroup.New()), file, withoutUpdates()["containerd 2.3"])
	id := r.mustRunBurstable(t, "a", profile+"=tight")
	// without a class, the value of the kubelet is stored
	for _, change := range []struct{ class, high string }{{"loose", fmt.Sprint(512 << 20)}, {"", kubeletHighOf1Gi}} {
		r.change(t, id, profile, change.class)
		r.resize(t, id)
		if got := r.container(t, id).Spec.Unified["memory.high"]; got != change.high {
			t.Errorf("in class %q, the runtime has stored memory.high %q, want %s", change.class, got, change.high)
		}
	}
}

// TestLimitsOfAFormerClassThatAResizeWritesWithoutThePluginAreCleared: the container has left class fast, but the runtime still stores
// the values of the class, because the plugin requests no updates. A resize while the plugin is stopped writes them again, and the next
// plugin clears them.
func TestLimitsOfAFormerClassThatAResizeWritesWithoutThePluginAreCleared(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, withoutUpdates()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", ""))
	for _, class := range []string{"fast", ""} {
		r.change(t, id, disks, class)
		if class != "" {
			r.resize(t, id) // the runtime stores the values
		}
	}
	r.node.Repair(t.Context()) // saves that the cgroup has no values

	r.stop()
	_ = r.UpdateContainer(t.Context(), id, &api.LinuxResources{}) // may only show the runtime that the plugin has ended
	r.resize(t, id)
	if kernel, _ := r.ioMax(t, id); !strings.Contains(kernel, "rbps=50000000") {
		t.Fatalf("after the resize, io.max is %q", kernel)
	}
	r.startNew(t)
	if kernel, _ := r.ioMax(t, id); kernel != "" {
		t.Errorf("io.max is %q", kernel)
	}
	r.wantReported(t, id, disks, "/update")
}

// TestOriginalLimitsComeBackWithoutUpdatesOfTheRuntime uses a container that was created with limits of its own on two disks. Its class
// replaces those of the first disk.
func TestOriginalLimitsComeBackWithoutUpdatesOfTheRuntime(t *testing.T) {
	const original = "254:0 rbps=6000000 wbps=max riops=max wiops=max\n254:32 rbps=7000000 wbps=max riops=max wiops=max"
	for name, options := range withoutUpdates() {
		t.Run(name, func(t *testing.T) {
			cgroups := simcgroup.New()
			cgroups.AddDisk("vdc", 254, 32)
			r := newMachineRigOn(t, newMachine(cgroups), machineFiles, options)
			id := r.runWith(t, r.pod(t, "a", "blockio=fast"), nriruntime.ContainerConfig{
				Name: "main", Resources: &api.LinuxResources{Unified: map[string]string{"io.max": original}},
			})
			if kernel, _ := r.ioMax(t, id); !strings.Contains(kernel, "rbps=50000000") {
				t.Fatalf("in its class, the container has io.max %q", kernel)
			}

			r.change(t, id, disks, "")
			for range 2 {
				kernel, _ := r.ioMax(t, id)
				if diff := cmp.Diff(original, strings.Join(slices.Sorted(strings.SplitSeq(kernel, "\n")), "\n")); diff != "" {
					t.Errorf("io.max without the class (-want +got):\n%s", diff)
				}
				r.wantReported(t, id, disks, "/update")
				r.node.Repair(t.Context())
			}
			if got := r.node.Status().Corrections; len(got) > 0 {
				t.Errorf("drift corrections: %v", got)
			}
		})
	}
}
