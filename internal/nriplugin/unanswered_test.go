// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// slow is an OCI runtime whose updates wait until the channel `released` is closed. The channel `reached` is closed at the
// first update.
type slow struct {
	nriruntime.OCI
	reached, released chan struct{}
	reach             sync.Once
}

func (o *slow) Update(ctx context.Context, id string, unified map[string]string) error {
	o.reach.Do(func() { close(o.reached) })
	<-o.released
	return o.OCI.Update(ctx, id, unified)
}

// TestAnUpdateThatTheRuntimeHasNotAnsweredIsNotReportedAsUndone simulates a client that stops waiting before the runtime
// makes the change.
func TestAnUpdateThatTheRuntimeHasNotAnsweredIsNotReportedAsUndone(t *testing.T) {
	m := newMachine(simcgroup.New())
	oci := &slow{OCI: m, reached: make(chan struct{}), released: make(chan struct{})}
	r := newMachineRigOn(t, m, machineFiles, nriruntime.Options{OCI: oci})
	release := sync.OnceFunc(func() { close(oci.released) })
	t.Cleanup(release)
	pod, err := r.RunPod(t.Context(), nriruntime.PodConfig{
		Name: "a", UID: "uid-a", Annotations: map[string]string{"qos.noderesource.dev/pod": "blockio=fast"},
	})
	if err != nil {
		t.Fatal(err)
	}

	id := r.mustRun(t, pod)

	ctx, cancel := context.WithCancel(t.Context())
	updated := make(chan error, 1)
	go func() {
		updated <- r.node.Update(ctx, qos.Subject{PodUID: "uid-a", Container: "main"}, map[string]string{disks: "slow"})
	}()

	await(t, oci.reached)
	cancel()
	err = <-updated
	if !errors.Is(err, state.ErrUnanswered) || !strings.Contains(err.Error(), "may still make the change") || strings.Contains(err.Error(), "undo") {
		t.Errorf("error is %v, want ErrUnanswered without an undo", err)
	}

	r.wantReported(t, id, disks, "fast/pod")

	release()
	r.node.Repair(t.Context())
	c, err := r.Container(id)
	if err != nil {
		t.Fatal(err)
	}

	if got := c.Spec.Unified["io.max"]; !strings.Contains(got, "rbps=50000000") {
		t.Errorf("the runtime stores %q, want rbps=50000000", got)
	}

	r.world.Hold(t)
}
