// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const onePod = files + "- {name: test.example/net, scope: pod, classes: [{name: high, capacity: 1}], test: {names: [high]}}\n"

// offerPodClass loads the class files onePod. The plugin then registers again, because classes of pods need further hooks.
func (r *rig) offerPodClass(t *testing.T) {
	t.Helper()
	n := r.Synchronizations()
	r.reconfigure(t, onePod)
	r.wait(t, n+1)
}

// sandbox runs a sandbox of a pod that requests class high.
func (r *rig) sandbox(t *testing.T, name string) (string, error) {
	t.Helper()
	return r.RunPod(t.Context(), nriruntime.PodConfig{
		Name: name, UID: "uid-" + name, Annotations: map[string]string{"qos.noderesource.dev/pod": "test.example/net=high"},
	})
}

func (r *rig) mustSandbox(t *testing.T, name string) string {
	t.Helper()
	id, err := r.sandbox(t, name)
	must(t, err)
	return id
}

func (r *rig) wantPodRefused(t *testing.T) {
	t.Helper()
	_, err := r.sandbox(t, "other")
	const want = `pod default/other: class "high" of test.example/net is full: 1 of 1 in use; available: none`
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v, want one line with %s", err, want)
	}
}

// TestAFullClassOfPodsIsRefusedToAnotherPod uses a class of capacity 1. The pod keeps its slot when its sandbox is
// replaced, and when the runtime restarts.
func TestAFullClassOfPodsIsRefusedToAnotherPod(t *testing.T) {
	r := newRig(t)
	r.offerPodClass(t)
	first := r.mustSandbox(t, "a")
	r.wantPodRefused(t)

	// The kubelet creates a new sandbox before it removes the dead one.
	second := r.mustSandbox(t, "a")
	must(t, r.RemovePod(t.Context(), first))

	r.wantPodRefused(t)

	r.restartRuntime(t)
	r.wantPodRefused(t)
	r.holds(t)

	must(t, r.StopPod(t.Context(), second))

	r.mustSandbox(t, "other")
}

// TestASandboxOfCRIOTakesASlotAfterARestartOnlyIfItRuns uses sandboxes without a process. After a restart, such a sandbox
// looks like a stopped one, so it takes its slot again only when its first container is created.
func TestASandboxOfCRIOTakesASlotAfterARestartOnlyIfItRuns(t *testing.T) {
	r := newRigOn(t, nriruntime.Options{CRIO: true})
	r.offerPodClass(t)
	first := r.mustSandbox(t, "a")
	must(t, r.StopPod(t.Context(), first))

	r.restartRuntime(t)
	// the stopped sandbox of pod a takes no slot
	second := r.mustSandbox(t, "b")
	r.wantPodRefused(t)

	// the sandbox of pod b looks stopped until its first container is created
	r.restartRuntime(t)
	r.mustRun(t, second)
	r.wantPodRefused(t)
	// with a running container, it takes its slot at once
	r.restartRuntime(t)
	r.wantPodRefused(t)

	// The invariants require a report of each pod that exists. There is none of the stopped pod a.
	must(t, r.RemovePod(t.Context(), first))
	r.holds(t)
}
