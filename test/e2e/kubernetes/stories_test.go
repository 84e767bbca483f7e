// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// networkStory: the API server sets the annotation of Cilium that docs/stories.md promises, even if the user has written another one.
func networkStory(t *testing.T, n *node) {
	policy := ""
	for _, block := range blocksOf(t, "../../../docs/stories.md", "yaml") {
		if strings.Contains(block, "metadata: {name: qos-network-priority}") {
			policy = block
		}
	}
	n.apply(t, policy)
	t.Cleanup(func() {
		n.kubectl(t, "delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", "qos-network-priority")
	})

	for request, want := range map[string]string{
		"vendor.example/network=fast": "guaranteed", "vendor.example/network=slow": "bestEffort", "vendor.example/other=fast": "",
	} {
		pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asks","namespace":"default","annotations":{%q:%q,%q:"guaranteed"}},`+
			`"spec":{"containers":[{"name":"main","image":"none"}]}}`, podAnnotation, request, cniPriority)
		until(t, "the policy sets the priority of "+request, func() (bool, string) {
			got, err := n.send(pod)
			return err == nil && strings.Contains(got, fmt.Sprintf("%q:%q", cniPriority, want)), got
		})
	}
}

const cniPriority = "bandwidth.cilium.io/priority"
