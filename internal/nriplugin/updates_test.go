// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// hanging returns runtimes that may hang if the plugin requests an update.
func hanging() map[string]nriruntime.Options {
	return map[string]nriruntime.Options{
		"containerd 2.3": {Name: "containerd", Version: "v2.3.7-k3s1", UpdatesHang: true},
		"another":        {Name: "other", Version: "9", UpdatesHang: true},
		"CRI-O":          {CRIO: true},
	}
}

// TestClassesChangeWithoutUpdatesOfTheRuntime changes the class of a container, and then resizes the container. The runtime writes all
// values that it has stored when it resizes a container.
func TestClassesChangeWithoutUpdatesOfTheRuntime(t *testing.T) {
	for name, options := range hanging() {
		t.Run(name, func(t *testing.T) {
			r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, options)
			id := r.mustRun(t, r.pod(t, "a", "rdt=gold,blockio=fast"))
			e, _ := r.node.Get(id)
			for i, class := range []string{"slow", "fast", ""} {
				if err := r.node.Update(t.Context(), e.Subject(), map[string]string{disks: class}); err != nil {
					t.Fatal(err)
				}
				r.wantReported(t, id, disks, class+"/update")
				r.world.Hold(t)
				r.mustResize(t, id, uint64(i+300))
				r.world.Hold(t)
			}
		})
	}
}

// mustResize changes the CPU shares of a container, as the kubelet does.
func (r *machineRig) mustResize(t *testing.T, id string, shares uint64) {
	t.Helper()
	resources := &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(shares)}}
	if err := r.UpdateContainer(t.Context(), id, resources); err != nil {
		t.Fatal(err)
	}
}

func TestChangedClassFilesReachContainersWithoutUpdatesOfTheRuntime(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, hanging()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", "blockio=slow"))
	r.mustConfigure(t, changed("ThrottleReadBps: 1M", "ThrottleReadBps: 2M"))
	r.world.Expect.Limits[disks]["slow"] = map[string]string{"io.max": "254:0 rbps=2000000\n254:16 rbps=2000000"}
	r.world.Hold(t)

	// The next plugin finds what the first one has written, although the runtime has stored other values.
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	r.wait(t, 2)
	r.node.Reconcile(t.Context())
	r.world.Hold(t)
	r.mustResize(t, id, 300)
	r.world.Hold(t)
}

func TestAChangeOfTheClassSucceedsAlthoughAnEarlierResizeOverwritesItsValues(t *testing.T) {
	m := newMachine(simcgroup.New())
	r := newMachineRigOn(t, m, machineFiles, hanging()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))
	before := limits()["fast"]["io.max"]

	// Once, the runtime writes the former values between the plugin's write and its verification.
	written := false
	r.host.after(func(path string) {
		if strings.HasSuffix(path, "/io.max") && !written {
			written = true
			if err := m.WriteFile(path, []byte(before)); err != nil {
				t.Error(err)
			}
		}
	})
	e, _ := r.node.Get(id)
	if err := r.node.Update(t.Context(), e.Subject(), map[string]string{disks: "slow"}); err != nil {
		t.Error(err)
	}
	if !written {
		t.Error("the plugin has not written io.max")
	}
	r.world.Hold(t)
}

func TestTheStatusReportsThatThePluginWritesValuesItself(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, hanging()["containerd 2.3"])
	status, err := r.world.API.Status(t.Context(), &qosv1alpha1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := "Registered with the container runtime. The plugin itself writes the values of changed classes to cgroups, " +
		"because containerd v2.3.7-k3s1 can hang when an NRI plugin requests an update of a container; use containerd 2.4 or later."
	got := ""
	for _, condition := range status.GetConditions() {
		if condition.GetType() == "RuntimeRegistered" {
			got = condition.GetMessage()
		}
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestAResizeReplacesTheStoredValuesOfAFormerClass uses a class whose values depend on the memory limit, and a resize that changes
// another limit.
func TestAResizeReplacesTheStoredValuesOfAFormerClass(t *testing.T) {
	r := newMemoryRig(t, hanging()["containerd 2.3"])
	id := r.runWithMemory(t, memoryQoS+"=tight")
	e, _ := r.node.Get(id)
	for _, change := range []struct{ class, high string }{{"loose", "900"}, {"", "700"}} {
		if err := r.node.Update(t.Context(), e.Subject(), map[string]string{memoryQoS: change.class}); err != nil {
			t.Fatal(err)
		}
		if err := r.UpdateContainer(t.Context(), id, &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(300))}}); err != nil {
			t.Fatal(err)
		}
		r.wantFile(t, id, "memory.high", change.high)
	}
}

// TestLimitsOfAFormerClassThatAResizeWritesWithoutThePluginAreCleared uses a runtime that still stores the values of the class.
func TestLimitsOfAFormerClassThatAResizeWritesWithoutThePluginAreCleared(t *testing.T) {
	r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, hanging()["containerd 2.3"])
	id := r.mustRun(t, r.pod(t, "a", ""))
	for _, class := range []string{"fast", ""} {
		if err := r.node.Update(t.Context(), r.subject(t, id), map[string]string{disks: class}); err != nil {
			t.Fatal(err)
		}
		if class != "" {
			r.resize(t, id) // the runtime stores the values
		}
	}
	r.node.Repair(t.Context()) // saves that the cgroup has no values

	r.stop()
	change := &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(512))}}
	_ = r.UpdateContainer(t.Context(), id, change) // may only show the runtime that the plugin has ended
	if err := r.UpdateContainer(t.Context(), id, change); err != nil {
		t.Fatal(err)
	}
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
	for name, options := range hanging() {
		t.Run(name, func(t *testing.T) {
			cgroups := simcgroup.New()
			cgroups.AddDisk("vdc", 254, 32)
			r := newMachineRigOn(t, newMachine(cgroups), machineFiles, options)
			id, err := r.CreateContainer(t.Context(), r.pod(t, "a", "blockio=fast"), nriruntime.ContainerConfig{
				Name: "main", Resources: &api.LinuxResources{Unified: map[string]string{"io.max": original}},
			})
			if err == nil {
				err = r.StartContainer(t.Context(), id)
			}
			if err != nil {
				t.Fatal(err)
			}
			if kernel, _ := r.ioMax(t, id); !strings.Contains(kernel, "rbps=50000000") {
				t.Fatalf("in its class, the container has io.max %q", kernel)
			}

			if err := r.node.Update(t.Context(), r.subject(t, id), map[string]string{disks: ""}); err != nil {
				t.Fatal(err)
			}
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
