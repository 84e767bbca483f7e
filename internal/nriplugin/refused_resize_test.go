// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// resizing is an OCI runtime that calls `update` in place of a change of a container.
type resizing struct {
	nriruntime.OCI
	update func(change func() error) error
}

func (r *resizing) Update(ctx context.Context, id string, files map[string]string) error {
	return r.update(func() error { return r.OCI.Update(ctx, id, files) })
}

func newResizingRig(t *testing.T) (*machineRig, *resizing) {
	m := newMachine(simcgroup.New())
	oci := &resizing{OCI: m, update: func(change func() error) error { return change() }}
	return newMachineRigOn(t, m, profileFile("a: {memory: {high: 50%, oomGroup: false}}"), nriruntime.Options{OCI: oci}), oci
}

// TestAResizeThatTheRuntimeRefusesChangesNothing checks that a class follows the limits and the values that a container has, and not
// those that the kubelet wanted.
func TestAResizeThatTheRuntimeRefusesChangesNothing(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.wantValue(t, id, "memory.high", "536870912")
	larger := resources(4<<30, 50_000)
	larger.Unified["memory.high"] = "1932730368"

	makes := oci.update
	oci.update = func(func() error) error { return errors.New("refused") }
	if err := r.UpdateContainer(t.Context(), id, larger); err == nil {
		t.Fatal("the runtime has made the change")
	}
	oci.update = makes
	r.passed.Add(int64(time.Minute))
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", "536870912")
	r.wantReported(t, id, profile, "a/pod")

	// A change that the runtime makes later begins with what the container has.
	if err := r.UpdateContainer(t.Context(), id, resources(0, 20_000)); err != nil {
		t.Fatal(err)
	}
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", "536870912")
	if err := r.updateProfile(t, id, ""); err != nil {
		t.Fatal(err)
	}
	r.wantValue(t, id, "memory.high", "966365184")
	r.wantReported(t, id, profile, "/update")
}

// TestARepairWhileTheRuntimeMakesAResizeDoesNotUndoIt has a repair between the writes of the runtime and the hook after them.
func TestARepairWhileTheRuntimeMakesAResizeDoesNotUndoIt(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	oci.update = func(change func() error) error {
		defer r.node.Repair(t.Context())
		return change()
	}
	if err := r.UpdateContainer(t.Context(), id, resources(2<<30, 50_000)); err != nil {
		t.Fatal(err)
	}
	r.wantValue(t, id, "memory.high", "1073741824")
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", "1073741824")
	r.wantReported(t, id, profile, "a/pod")
}

// TestRefusedResizesDoNotSuspendTheRepair has a kubelet that requests a refused change again every 10 s.
func TestRefusedResizesDoNotSuspendTheRepair(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	if err := r.host.WriteFile(r.cgroupFile(t, id, "memory.high"), []byte("max")); err != nil {
		t.Fatal(err)
	}

	makes := oci.update
	for range 2 {
		oci.update = func(func() error) error { return errors.New("refused") }
		if err := r.UpdateContainer(t.Context(), id, resources(4<<30, 50_000)); err == nil {
			t.Fatal("the runtime has made the change")
		}
		oci.update = makes // only the kubelet's change is refused
		r.passed.Add(int64(9 * time.Second))
		r.node.Repair(t.Context())
		r.passed.Add(int64(time.Second))
	}
	r.wantValue(t, id, "memory.high", "536870912")
}
