// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// resizing is an OCI runtime that calls `instead` in place of a change of a container, if it is not nil. The runtime's goroutines read it
// while the test changes it.
type resizing struct {
	nriruntime.OCI
	instead atomic.Pointer[func(change func() error) error]
}

func (r *resizing) Update(ctx context.Context, id string, files map[string]string) error {
	change := func() error { return r.OCI.Update(ctx, id, files) }
	if instead := r.instead.Load(); instead != nil {
		return (*instead)(change)
	}
	return change()
}

// halfOf1Gi is the memory.high of the class in newResizingRig, for a container with a memory limit of 1 GiB.
var halfOf1Gi = fmt.Sprint(512 << 20)

// refuse is a change that the runtime does not make.
var refuse = func(func() error) error { return errors.New("refused") }

func newResizingRig(t *testing.T) (*machineRig, *resizing) {
	m := newMachine(simcgroup.New())
	oci := &resizing{OCI: m}
	return newMachineRigOn(t, m, profileFile("a: {memory: {high: 50%, oomGroup: false}}"), nriruntime.Options{OCI: oci}), oci
}

// TestAResizeThatTheRuntimeRefusesChangesNothing refuses to double the memory limit of 1 GiB. The class still sets memory.high
// to half of 1 GiB.
func TestAResizeThatTheRuntimeRefusesChangesNothing(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	r.wantValue(t, id, "memory.high", halfOf1Gi)

	oci.instead.Store(&refuse)
	if err := r.UpdateContainer(t.Context(), id, doubled()); err == nil {
		t.Fatal("the runtime has made the change")
	}
	oci.instead.Store(nil)
	// a repair ignores the container for 10 s, because the runtime may still make the change
	r.passed.Add(int64(time.Minute))
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", halfOf1Gi)
	r.wantReported(t, id, profile, "a/pod")

	// a later resize changes only the CPU limit
	must(t, r.UpdateContainer(t.Context(), id, resources(0, 20_000)))
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", halfOf1Gi)

	// without the class, the container has the memory.high of the kubelet for 1 GiB, and not that of the refused resize
	r.change(t, id, profile, "")
	r.wantValue(t, id, "memory.high", kubeletHighOf1Gi)
	r.wantReported(t, id, profile, "/update")
}

// TestARepairWhileTheRuntimeMakesAResizeDoesNotUndoIt uses a repair between the writes of the runtime and the hook after them.
func TestARepairWhileTheRuntimeMakesAResizeDoesNotUndoIt(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	repair := func(change func() error) error {
		defer r.node.Repair(t.Context())
		return change()
	}
	oci.instead.Store(&repair)
	must(t, r.UpdateContainer(t.Context(), id, resources(2<<30, 50_000)))
	// the class sets memory.high to half of the limit, which is 2 GiB now
	r.wantValue(t, id, "memory.high", fmt.Sprint(1<<30))
	r.node.Repair(t.Context())
	r.wantValue(t, id, "memory.high", fmt.Sprint(1<<30))
	r.wantReported(t, id, profile, "a/pod")
}

// TestRefusedResizesDoNotSuspendTheRepair: a repair ignores a container for 10 s after a resize began. This must not start anew with each
// attempt of a kubelet that requests a refused change again and again.
func TestRefusedResizesDoNotSuspendTheRepair(t *testing.T) {
	r, oci := newResizingRig(t)
	id := r.mustRunBurstable(t, "a", profile+"=a")
	must(t, r.host.WriteFile(r.cgroupFile(t, id, "memory.high"), []byte("max")))

	for range 2 {
		oci.instead.Store(&refuse)
		if err := r.UpdateContainer(t.Context(), id, resources(4<<30, 50_000)); err == nil {
			t.Fatal("the runtime has made the change")
		}
		oci.instead.Store(nil) // only the kubelet's change is refused
		r.passed.Add(int64(9 * time.Second))
		r.node.Repair(t.Context())
		r.passed.Add(int64(time.Second))
	}
	r.wantValue(t, id, "memory.high", halfOf1Gi)
}
