// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/status"
)

// onOtherNode replaces the pod of the manifests by its successor on another node.
var onOtherNode = strings.NewReplacer("u1", "u2", "node-1", "node-2")

// TestAVolumeMovesWithItsPod uses a pod on node-2 whose predecessor ran on node-1. The object of node-1 still has the predecessor's limits,
// and node-1 is offline: it has not applied generation 3. This must not stop a change of the limits.
func TestAVolumeMovesWithItsPod(t *testing.T) {
	c := newStillController(t, onOtherNode.Replace(modifiable), strings.Replace(nodeWithLimits, "generation: 2}", "generation: 3}", 1))
	for _, test := range []struct {
		name, node2 string
		problem     string // the error of ModifyVolume; empty if it succeeds
		patch       string // the last patch of node-2's NodeQOSResources
	}{
		{"node-2 has no limits", "metadata: {name: node-2}\n", "pod a/db on node node-2: volume /init of container setup: the limits are not in the",
			`"podUID":"u2","container":"main","path":"/data","claim":"a/data","class":"silver"`},
		{"node-2 has the limits", onOtherNode.Replace(nodeWithLimits), "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.putNode(t, test.node2)
				err := c.modify(t, map[string]string{"iops": "500"})
				if message := status.Convert(err).Message(); !strings.Contains(message, test.problem) || (err == nil) != (test.problem == "") {
					t.Errorf("got %v, want %q", err, test.problem)
				}
			})

			// Only node-2 has a pod now, so node-1 gets a spec without volumes.
			for node, want := range map[string]string{"node-1": `"spec":{"written":true}`, "node-2": test.patch} {
				if patch := c.reconciled(t, node); !strings.Contains(patch, want) || (patch == "") != (want == "") {
					t.Errorf("%s gets the patch %q, want %q", node, patch, want)
				}
			}
		})
	}
}
