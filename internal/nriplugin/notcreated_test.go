// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// refusing is an OCI runtime that can refuse to create containers.
type refusing struct {
	nriruntime.OCI
	refuses atomic.Bool
}

func (o *refusing) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	if o.refuses.Load() {
		return 0, errors.New(`exec: "no-such-command": executable file not found in $PATH`)
	}
	return o.OCI.Create(ctx, spec)
}

// crioRig is a machineRig with CRI-O as the runtime.
type crioRig struct {
	*machineRig
	oci *refusing
}

func newCRIORig(t *testing.T) crioRig {
	t.Helper()
	m := newMachine(simcgroup.New())
	oci := &refusing{OCI: m}
	return crioRig{newMachineRigOn(t, m, machineFiles, nriruntime.Options{CRIO: true, OCI: oci}), oci}
}

// refused simulates an OCI runtime that refuses to create a container, e.g. because the command does not exist.
func (r crioRig) refused(t *testing.T, pod string) {
	t.Helper()
	r.oci.refuses.Store(true)
	defer r.oci.refuses.Store(false)
	if _, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"}); err == nil {
		t.Fatal("the container was created")
	}
}

func (r *machineRig) wantInUse(t *testing.T, want int) {
	t.Helper()
	if got := r.node.Status().Resources[0].InUse["gold"]; got != want {
		t.Errorf("%d slots of gold are in use, want %d", got, want)
	}
}

func TestARefusedCreationOfCRIOFreesItsSlotWhenItsPodStops(t *testing.T) {
	r := newCRIORig(t)
	pod := r.pod(t, "a", "rdt=gold")
	r.refused(t, pod)
	r.mustRun(t, r.pod(t, "b", "rdt=gold"))
	if _, err := r.run(t, r.pod(t, "c", "rdt=gold")); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("the error is %v, want that the class is full while the first container may still be created", err)
	}

	must(t, r.StopPod(t.Context(), pod))
	r.mustRun(t, r.pod(t, "d", "rdt=gold"))
	r.world.Hold(t)
}

// TestRetriesOfARefusedCreationTakeOneSlotOnCRIO: CRI-O does not notify plugins when a creation fails after their hook,
// so the slot stays taken until the next attempt.
func TestRetriesOfARefusedCreationTakeOneSlotOnCRIO(t *testing.T) {
	r := newCRIORig(t)
	pod := r.pod(t, "a", "rdt=gold")
	for range 3 {
		r.refused(t, pod)
	}
	r.wantInUse(t, 1)
	id := r.mustRun(t, pod)
	r.wantInUse(t, 1)
	r.world.Hold(t)
	r.mustStop(t, id)
	r.wantInUse(t, 0)
}

// TestARefusedCreationOfCRIOFreesItsSlotLongBeforeItsPodStops also creates a container that is started much later. This
// container keeps its slot. After 5 minutes, a container without a cgroup counts as not created.
func TestARefusedCreationOfCRIOFreesItsSlotLongBeforeItsPodStops(t *testing.T) {
	r := newCRIORig(t)
	r.refused(t, r.pod(t, "a", "rdt=gold"))
	created := r.create(t, r.pod(t, "b", "rdt=gold"))

	r.node.Repair(t.Context())
	r.wantInUse(t, 2) // the plugin does not yet know whether both containers will be created

	r.passed.Add(int64(6 * time.Minute))
	r.node.Repair(t.Context())
	r.wantInUse(t, 1)
	must(t, r.StartContainer(t.Context(), created))

	r.wantReported(t, created, "k8s.io/rdt", "gold/pod")
	r.world.Hold(t)
}

// TestAContainerThatStartsLongAfterItsCreationHasItsClass simulates containerd, which makes the cgroup of a container only when it
// starts the container. After 5 minutes without a cgroup, a repair releases the slot of the container. The start takes it again.
func TestAContainerThatStartsLongAfterItsCreationHasItsClass(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	id := r.create(t, r.pod(t, "a", "rdt=gold"))
	r.passed.Add(int64(6 * time.Minute))
	r.node.Repair(t.Context())
	r.wantInUse(t, 0)
	must(t, r.StartContainer(t.Context(), id))
	r.wantInUse(t, 1)
	r.wantReported(t, id, "k8s.io/rdt", "gold/pod")
	r.world.Hold(t)
}
