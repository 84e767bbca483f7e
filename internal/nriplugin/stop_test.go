// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// TestAPluginThatIsStoppedInTheMiddleOfAHookEndsAtOnceAndTheNextOneMakesUpForIt has a hook wait for the kernel when the plugin is told
// to end, as by SIGTERM.
func TestAPluginThatIsStoppedInTheMiddleOfAHookEndsAtOnceAndTheNextOneMakesUpForIt(t *testing.T) {
	for _, answers := range []bool{false, true} {
		name := map[bool]string{false: "and the kernel never answers", true: "and the kernel answers then"}[answers]
		t.Run(name, func(t *testing.T) {
			r := newMachineRig(t, simcgroup.NewLegacy())
			r.world.Expect.Limits = nil
			runs := r.mustRun(t, r.pod(t, "runs", "rdt=gold,blockio=fast"))
			pod := r.pod(t, "starting", "rdt=gold,blockio=fast")
			id, err := r.CreateContainer(t.Context(), pod, nriruntime.ContainerConfig{Name: "main"})
			if err != nil {
				t.Fatal(err)
			}
			reached, release := r.hang(t, id)
			started := make(chan error, 1)
			go func() { started <- r.StartContainer(t.Context(), id) }()
			<-reached
			r.stop() // returns though the kernel has not answered
			if answers {
				release()
			}
			if err := <-started; err == nil {
				t.Error("the container was started, though nobody has seen it in its class")
			}
			r.startNew(t)
			r.wantReported(t, runs, groups, "gold/pod")
			if answers {
				r.mustRun(t, pod)
			}
			release()
			r.world.Hold(t)
		})
	}
}

// startNew begins a new process of the plugin.
func (r *machineRig) startNew(t *testing.T) {
	t.Helper()
	r.startNewWith(t, machineFiles)
}

// startNewWith begins a new process of the plugin with other class files.
func (r *machineRig) startNewWith(t *testing.T, text string) {
	t.Helper()
	r.stop()
	n := r.Synchronizations()
	r.node, r.plugin = r.newNode(t), nil
	r.mustConfigure(t, text)
	r.world.API = serveAPI(t, r.node)
	r.plugin, r.stop = startPlugin(t, r.node, r.Socket())
	r.wait(t, n+1)
	r.node.Reconcile(t.Context())
}
