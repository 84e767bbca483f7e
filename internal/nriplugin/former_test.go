// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// ioMax returns a container's io.max as the kernel has it, and as the runtime has stored it.
func (r *machineRig) ioMax(t *testing.T, id string) (kernel, stored string) {
	t.Helper()
	c := r.container(t, id)
	data, err := r.host.ReadFile("/sys/fs/cgroup" + c.Spec.CgroupsPath + "/io.max")
	must(t, err)
	return strings.TrimSpace(string(data)), c.Spec.Unified["io.max"]
}

// resize simulates a resize by the kubelet. The runtime then sets all stored values again.
func (r *machineRig) resize(t *testing.T, id string) {
	t.Helper()
	must(t, r.UpdateContainer(t.Context(), id, &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(512))}}))
}

// TestLimitsOfFormerClassFilesAreCleared changes class files while the plugin is not running, as in a rollout of the
// DaemonSet together with its ConfigMap. In the first case, the disk 254:32 (vdc) is taken out of class fast.
// Resizes and repairs do not bring the limits back, and repairs find no drift.
func TestLimitsOfFormerClassFilesAreCleared(t *testing.T) {
	const ofDefault = "- name: k8s.io/blockio\n  defaultClass: slow\n"
	for name, test := range map[string]struct{ before, request, after, kernel, reported string }{
		"a disk is taken out of a class": {
			before: changed("fast: [{Devices: [/dev/vda]", "fast: [{Devices: [/dev/vda, /dev/vdc]"), request: "blockio=fast", after: machineFiles,
			kernel: "254:0 rbps=50000000 wbps=max riops=max wiops=max", reported: "fast/pod",
		},
		"a default class is removed": {
			before: changed("- name: k8s.io/blockio\n", ofDefault), request: "",
			after:  changed(", {name: slow}]", "]", `      slow: [{Devices: ["/dev/vd[ab]"], ThrottleReadBps: 1M}]`, ""),
			kernel: "", reported: "/", // no class, and no source of one
		},
	} {
		t.Run(name, func(t *testing.T) {
			cgroups := simcgroup.New()
			cgroups.AddDisk("vdc", 254, 32)
			r := newMachineRig(t, cgroups)
			r.mustConfigure(t, test.before)
			id := r.mustRun(t, r.pod(t, "a", test.request))
			if before, _ := r.ioMax(t, id); before == test.kernel {
				t.Fatalf("io.max is %q already before the change", before)
			}

			r.startNewWith(t, test.after)
			r.wantReported(t, id, disks, test.reported)
			corrections := r.node.Status().Corrections
			for range 2 {
				r.resize(t, id)
				r.node.Repair(t.Context())
				kernel, stored := r.ioMax(t, id)
				if kernel != test.kernel || strings.Contains(stored, "254:32 rbps=50000000") {
					t.Errorf("io.max is %q in the kernel and %q in the runtime", kernel, stored)
				}
			}

			if got := r.node.Status().Corrections; got[state.Correction{Resource: disks, What: state.AssignmentDrift}] != corrections[state.Correction{Resource: disks, What: state.AssignmentDrift}] {
				t.Errorf("more drift corrections are counted: %v, before %v", got, corrections)
			}

			r.world.Hold(t)
		})
	}
}

// TestForeignLimitsOnDisksOfNoClassAreNotChanged sets limits for a disk that is in no class. One of the limited
// containers has a class.
func TestForeignLimitsOnDisksOfNoClassAreNotChanged(t *testing.T) {
	cgroups := simcgroup.New()
	cgroups.AddDisk("vdc", 254, 32)
	r := newMachineRig(t, cgroups)
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))
	c := r.container(t, id)

	must(t, r.host.Machine.WriteFile("/sys/fs/cgroup"+c.Spec.CgroupsPath+"/io.max", []byte("254:32 wbps=5000000")))

	// Another program uses the runtime to set a limit for a container without a class.
	pod := r.pod(t, "b", "")
	other := r.runWith(t, pod, nriruntime.ContainerConfig{
		Name: "main", Resources: &api.LinuxResources{Unified: map[string]string{"io.max": "254:32 rbps=6000000 wbps=max riops=max wiops=max"}},
	})

	// The runtime reports the values that it has stored, and the plugin compares them with the classes.
	r.restartRuntime(t)
	before, _ := r.ioMax(t, id)
	for range 3 {
		r.node.Repair(t.Context())
	}

	if kernel, stored := r.ioMax(t, other); !strings.Contains(kernel, "rbps=6000000") || !strings.Contains(stored, "rbps=6000000") {
		t.Errorf("io.max of the other container is %q in the kernel and %q in the runtime", kernel, stored)
	}

	if after, _ := r.ioMax(t, id); after != before || !strings.Contains(after, "254:32") {
		t.Errorf("io.max is %q after the repairs, and was %q", after, before)
	}

	if corrections := r.node.Status().Corrections; len(corrections) > 0 {
		t.Errorf("drift corrections: %v, want none", corrections)
	}

	r.wantReported(t, id, disks, "fast/pod")
}

// TestLimitsOfAClassThatAContainerGotLaterAreNotItsOriginals uses a container that was created while the plugin was not connected. The
// runtime stores the values of its class later: when the plugin requests an update or, if an update can hang the runtime, with the next
// resize. Without the class, the container must have what it had when it was created.
func TestLimitsOfAClassThatAContainerGotLaterAreNotItsOriginals(t *testing.T) {
	const theirs = "254:0 rbps=7000000 wbps=max riops=max wiops=max"
	normal, updatesHang := nriruntime.Options{}, nriruntime.Options{Name: "other", Version: "9", UpdatesHang: true}
	for name, test := range map[string]struct {
		runtime nriruntime.Options
		had     string
	}{
		"a container without values":                                       {normal, ""},
		"a container with values of another program":                       {normal, theirs},
		"a runtime that an update can hang":                                {updatesHang, ""},
		"a runtime that an update can hang, and values of another program": {updatesHang, theirs},
	} {
		t.Run(name, func(t *testing.T) {
			r := newMachineRigOn(t, newMachine(simcgroup.New()), machineFiles, test.runtime)
			r.stop()
			config := nriruntime.ContainerConfig{Name: "main"}
			if test.had != "" {
				config.Resources = &api.LinuxResources{Unified: map[string]string{"io.max": test.had}}
			}
			id := r.runWith(t, r.pod(t, "a", "blockio=fast"), config)
			r.startNew(t)
			r.wantReported(t, id, disks, "fast/pod")
			r.resize(t, id) // now the runtime has stored the values of the class

			// a new process of the plugin still knows the originals
			r.startNew(t)
			r.change(t, id, disks, classes.SystemDefault)
			// neither the runtime nor the plugin writes values of the class again
			r.resize(t, id)
			r.restartRuntime(t)
			r.node.Repair(t.Context())
			if kernel, stored := r.ioMax(t, id); kernel != test.had || strings.Contains(stored, "rbps=50000000") {
				t.Errorf("io.max is %q in the kernel and %q in the runtime, want %q", kernel, stored, test.had)
			}
		})
	}
}
