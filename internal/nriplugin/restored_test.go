// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// TestARestoredContainerCannotBringTheRecordsOfThePlugin creates containers with annotations of a checkpoint image. A
// restarted plugin would take these annotations for its own.
func TestARestoredContainerCannotBringTheRecordsOfThePlugin(t *testing.T) {
	r := newRig(t)
	for _, forged := range []string{"assigned.qos.noderesource.dev", "originals.qos.noderesource.dev"} {
		_, err := r.CreateContainer(t.Context(), r.pod(t, forged, ""), nriruntime.ContainerConfig{Name: "main", Annotations: map[string]string{forged: "[]"}})
		if err == nil || !strings.Contains(err.Error(), "the container already has the annotation "+forged) {
			t.Errorf("the error is %v", err)
		}
	}
	if refused := r.node.Refused(); len(refused) != 2 || refused[0].Reason != "BadRequest" {
		t.Errorf("the refusals are %+v", refused)
	}
	if got := r.node.Assignments(); len(got) > 0 {
		t.Errorf("after the refusals, the assignments are %+v", got)
	}
}
