// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

func (r *rig) podWithoutUID(t *testing.T, name, request string) (string, error) {
	t.Helper()
	return r.RunPod(t.Context(), nriruntime.PodConfig{
		Name: name, NoUID: true, Annotations: map[string]string{"qos.noderesource.dev/pod": request},
	})
}

// TestPodsWithoutUIDDoNotShareASlot runs pods without a UID, as crictl and ctr create them.
func TestPodsWithoutUIDDoNotShareASlot(t *testing.T) {
	r := newRig(t)
	for i, name := range []string{"first", "second"} {
		pod, err := r.podWithoutUID(t, name, "test.example/cache=solo")
		must(t, err)
		_, err = r.run(t, pod)
		if i == 0 && err != nil {
			t.Fatal(err)
		}
		if i == 1 && (err == nil || !strings.Contains(err.Error(), `class "solo" of test.example/cache is full: 1 of 1 in use`)) {
			t.Errorf("the second pod got the only slot as well: the error is %v", err)
		}
	}

	r.restartRuntime(t)
	if got := r.node.Assignments(); len(got) != 1 || got[0].UID != got[0].SandboxID || r.inUse("solo") != 1 {
		t.Errorf("after a restart of the runtime, assignments are %+v, want one pod, whose UID is the ID of its sandbox", got)
	}

	r.holds(t)
}

func TestPodsWithoutUIDDoNotShareASlotOfPodScope(t *testing.T) {
	r := newRig(t)
	r.offerPodClass(t)
	if _, err := r.podWithoutUID(t, "first", "test.example/net=high"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.podWithoutUID(t, "second", "test.example/net=high"); err == nil || !strings.Contains(err.Error(), "is full: 1 of 1 in use") {
		t.Errorf("the second pod got the only slot as well: the error is %v", err)
	}
}
