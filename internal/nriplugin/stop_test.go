// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"testing"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestAStoppedPluginDoesNotWaitForAWriteThatHangsAndTheNextOneRecovers stops the plugin, as SIGTERM does, while a hook
// waits for a write. It uses cgroup v1, where the plugin itself writes the values of disks before a container starts.
func TestAStoppedPluginDoesNotWaitForAWriteThatHangsAndTheNextOneRecovers(t *testing.T) {
	for _, returns := range []bool{false, true} {
		name := map[bool]string{false: "the write hangs until the end", true: "the write returns after the stop"}[returns]
		t.Run(name, func(t *testing.T) {
			r := newMachineRig(t, simcgroup.NewLegacy())
			r.world.Expect.Limits = nil // the expected values of disks are those of cgroup v2
			runs := r.mustRun(t, r.pod(t, "runs", "rdt=gold,blockio=fast"))
			pod := r.pod(t, "starting", "rdt=gold,blockio=fast")
			id := r.create(t, pod)

			reached, release := r.hang(t, id)
			started := make(chan error, 1)
			go func() { started <- r.StartContainer(t.Context(), id) }()
			<-reached
			r.stop() // returns when the plugin has ended
			if returns {
				release()
			}

			if err := <-started; err == nil {
				t.Error("the container was started, though it was not verified in its class")
			}

			r.startNew(t)
			r.wantReported(t, runs, groups, "gold/pod")
			r.mustRun(t, pod)

			release() // has no effect if the write has returned
			r.world.Hold(t)
		})
	}
}

// TestContainersThatStartedWithoutThePluginGetTheirClassesLater creates a container while no plugin runs, and then
// starts the plugin.
func TestContainersThatStartedWithoutThePluginGetTheirClassesLater(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	r.stop()
	id := r.mustRun(t, r.pod(t, "a", "rdt=gold,blockio=fast"))
	r.startNew(t)
	r.wantReported(t, id, groups, "gold/pod")
	if got := r.node.Status().Adopted; got != 1 {
		t.Errorf("%d containers are counted as adopted, want 1", got)
	}
	r.world.Hold(t)
}

// startNew starts a new process of the plugin.
func (r *machineRig) startNew(t *testing.T) {
	t.Helper()
	r.startNewWith(t, machineFiles)
}

// startNewWith starts a new process of the plugin with other class files.
func (r *machineRig) startNewWith(t *testing.T, text string) {
	t.Helper()
	r.stop()
	r.node, r.plugin = r.newNode(t), nil
	r.mustConfigure(t, text)
	r.world.API = serveAPI(t, r.node)
	r.begin(t, r.node)
	r.node.Reconcile(t.Context())
}
