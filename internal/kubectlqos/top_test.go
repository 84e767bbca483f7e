// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"math"
	"testing"
)

// TestTopDoesNotOverflow: the sums over all nodes are at most the largest int64.
func TestTopDoesNotOverflow(t *testing.T) {
	r := newRig(t)
	for name, class := range map[string]map[string]any{
		"n1": {"name": "gold", "capacity": int64(math.MaxInt64), "inUse": int64(math.MaxInt64 - 1), "holdersOmitted": int64(math.MaxInt64 - 1)},
		"n2": {"name": "gold", "capacity": int64(2), "inUse": int64(2), "holdersOmitted": int64(2)},
		"n3": {"name": "gold", "capacity": int64(math.MaxInt64), "inUse": int64(0)},
		"n4": {"name": "gold", "capacity": int64(math.MaxInt64), "inUse": int64(0)},
	} {
		r.add(t, "{kind: NodeQOSResources, apiVersion: qos.noderesource.dev/v1alpha1, metadata: {name: "+name+"}}")
		r.updateNode(t, name, func(object map[string]any) {
			object["status"] = map[string]any{
				"conditions": []any{map[string]any{"type": "PluginReady", "status": "True"}},
				"qosResources": map[string]any{"containerQOSResources": []any{
					map[string]any{"name": "k8s.io/rdt", "mutable": true, "classes": []any{class}},
				}},
			}
		})
	}

	wantAnswer(t, answer{Out: `
RESOURCE     CLASS   NODES   IN-USE                CAPACITY              FREE                  HELD
k8s.io/rdt   gold    4       9223372036854775807   9223372036854775807   9223372036854775807   -
`}, r.run(t, "top"))

	wantAnswer(t, answer{Out: `
RESOURCE     CLASS   NAMESPACE     IN-USE                PODS
k8s.io/rdt   gold    <not named>   9223372036854775807   unknown
`}, r.run(t, "top", "--by-namespace"))
}
