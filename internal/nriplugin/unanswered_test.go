// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestAnUpdateThatTheRuntimeHasNotAnsweredIsNotReportedAsUndone simulates a client that stops waiting before the runtime
// makes the change.
func TestAnUpdateThatTheRuntimeHasNotAnsweredIsNotReportedAsUndone(t *testing.T) {
	m := newMachine(simcgroup.New())
	oci := &resizing{OCI: m}
	reached, released := make(chan struct{}), make(chan struct{})
	reach, release := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(released) })
	wait := func(change func() error) error {
		reach()
		<-released
		return change()
	}
	oci.instead.Store(&wait)
	r := newMachineRigOn(t, m, machineFiles, nriruntime.Options{OCI: oci})
	t.Cleanup(release)
	id := r.mustRun(t, r.pod(t, "a", "blockio=fast"))

	subject := r.subject(t, id)
	ctx, cancel := context.WithCancel(t.Context())
	updated := make(chan error, 1)
	go func() { updated <- r.node.Update(ctx, subject, map[string]string{disks: "slow"}) }()

	await(t, reached)
	cancel()
	err := <-updated
	if !errors.Is(err, state.ErrUnanswered) || !strings.Contains(err.Error(), "may still make the change") || strings.Contains(err.Error(), "undo") {
		t.Errorf("error is %v, want ErrUnanswered without an undo", err)
	}

	r.wantReported(t, id, disks, "fast/pod")

	// the runtime makes the change late, and the next repair undoes it
	release()
	r.node.Repair(t.Context())
	if got := r.container(t, id).Spec.Unified["io.max"]; !strings.Contains(got, "rbps=50000000") {
		t.Errorf("the runtime stores %q, want rbps=50000000", got)
	}

	r.world.Hold(t)
}
