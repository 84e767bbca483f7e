// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// hang blocks each write to a path that contains the text in the parameter `below`, until `release` is called. The channel
// `reached` is closed when the first write is blocked.
func (r *machineRig) hang(t *testing.T, below string) (reached <-chan struct{}, release func()) {
	t.Helper()
	waits, released := make(chan struct{}), make(chan struct{})
	arrive := sync.OnceFunc(func() { close(waits) })
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	r.host.intercept(func(op, path string) error {
		if op == "write" && strings.Contains(path, below) {
			arrive()
			<-released
		}
		return nil
	})
	return waits, release
}

// TestAWriteThatHangsFailsOnlyItsHook uses cgroup v1, where the plugin writes the values of disks before a container starts.
func TestAWriteThatHangsFailsOnlyItsHook(t *testing.T) {
	runtimeWaitsFor(t, adaptation.DefaultPluginRequestTimeout) // the runtime disconnects a plugin that answers later
	r := newMachineRig(t, simcgroup.NewLegacy())
	r.world.Expect.Limits[disks] = map[string]map[string]string{
		"fast": {"blkio.throttle.read_bps_device": "254:0 50000000"},
		"slow": {"blkio.throttle.read_bps_device": "254:0 1000000\n254:16 1000000"},
	}

	pod := r.pod(t, "stuck", "blockio=fast,rdt=gold")
	id := r.create(t, pod)
	reached, release := r.hang(t, id)
	started := make(chan error, 1)
	go func() { started <- r.StartContainer(t.Context(), id) }()
	<-reached
	other := r.mustRun(t, r.pod(t, "other", "blockio=fast,rdt=gold")) // the runtime calls this hook after the one that hangs
	err := <-started
	// a hook has 60% of the runtime's timeout of 2 s
	for _, part := range []string{"pod default/stuck container main", "the kernel did not answer within 1.2s"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error is %v, want %q in it", err, part)
		}
	}

	r.wantReported(t, other, disks, "fast/pod")
	r.mustStop(t, r.mustRun(t, r.pod(t, "third", "blockio=fast,rdt=gold"))) // the slots are free although the write still hangs
	if got := r.Synchronizations(); got != 1 {
		t.Error("the plugin was disconnected")
	}

	r.world.Hold(t)

	// The kubelet creates the container again. After that, the kernel answers.
	again := r.create(t, pod)
	release()
	must(t, r.StartContainer(t.Context(), again))
	r.wantReported(t, again, disks, "fast/pod")
	r.world.Hold(t)
}

// TestARefusalBecauseOfAHangingKernelIsReported expects that the refusal is reported like other refusals, and is not
// reported again when the kernel answers.
func TestARefusalBecauseOfAHangingKernelIsReported(t *testing.T) {
	runtimeWaitsFor(t, adaptation.DefaultPluginRequestTimeout)
	r := newMachineRig(t, simcgroup.NewLegacy())
	pod := r.pod(t, "stuck", "blockio=fast")
	id := r.create(t, pod)

	_, release := r.hang(t, id)
	if err := r.StartContainer(t.Context(), id); err == nil {
		t.Fatal("the container started")
	}

	if got := r.node.Refused(); len(got) != 1 || got[0].PodName != "stuck" || !strings.Contains(got[0].Message, "did not answer") {
		t.Errorf("refused: %+v; want pod stuck, because the kernel did not answer", got)
	}

	if got := r.node.Status().Refusals["EnforcementFailed"]; got != 1 {
		t.Errorf("%d refusals are counted, want 1", got)
	}

	r.mustRun(t, pod)
	changed := r.node.Changed()
	release()
	select {
	case <-changed: // the store has recorded that the blocked write returned
	case <-time.After(time.Second):
	}

	if got := r.node.Refused(); len(got) != 0 {
		t.Errorf("the container runs, but the refusals are %+v, want none", got)
	}
}
