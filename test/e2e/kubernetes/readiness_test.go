// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"regexp"
	"strings"
	"testing"
)

const readinessTaint = "readiness.k8s.io/qos-plugin-ready"

// awaitPlugin taints the node as the kubelet does on its registration (docs/kubernetes.md), and runs a pod that requests
// a class by annotation. Without the taint, the pod would start on a node without the plugin, and so without its class.
func (n *node) awaitPlugin(t *testing.T) {
	n.kubectl(t, "taint", "node", n.name, readinessTaint+"=pending:NoSchedule")
	t.Cleanup(func() { _, _ = n.try("taint", "node", n.name, readinessTaint+"-") })
	n.createPods(t, pod{name: "early", annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=throttled"}})
}

// taintKeepsPodsOff checks that a pod stays pending while its node has the taint. Then it removes the taint, as the Node
// Readiness Controller does when the plugin is ready.
func taintKeepsPodsOff(t *testing.T, n *node) {
	n.pending(t, "early", "had untolerated taint")
	n.kubectl(t, "taint", "node", n.name, readinessTaint+"-")
	n.running(t, "early")
	n.condition(t, "early", "main: k8s.io/blockio throttled")
	n.delete(t, "early")
}

// readinessIsReported checks the rights that the reporter of the Node Readiness Controller needs to write the condition of
// docs/kubernetes.md. The reporter does not run. Instead, the test sends the requests of the reporter: with the token of the
// publisher's pod, and with impersonation of the node.
func readinessIsReported(t *testing.T, n *node) {
	const rights = deploy + "kubernetes-node-readiness/rights/rbac.yaml"
	const own, other = "/api/v1/nodes/node-1", "/api/v1/nodes/node-3"
	n.apply(t, distant)
	n.kubectl(t, "apply", "-f", rights)
	t.Cleanup(func() {
		n.kubectl(t, "delete", "-f", rights)
		n.kubectl(t, "delete", "pod", "theirs", "--force", "--grace-period=0")
		n.kubectl(t, "delete", "node", "node-3")
	})

	token := n.publisherToken(t)
	// status returns the Node with the condition added, as the body of a PUT request.
	status := func(name string) string {
		object := n.kubectl(t, "get", "node", name, "-o", "json")
		object = regexp.MustCompile(`"resourceVersion": "\d+",`).ReplaceAllString(object, "") // the kubelet writes meanwhile
		condition := `{"type":"qos.noderesource.dev/PluginReady","status":"True","reason":"EndpointOK","message":"by the test"}`
		if strings.Contains(object, `"conditions": [`) {
			return strings.Replace(object, `"conditions": [`, `"conditions": [`+condition+`,`, 1)
		}
		return strings.Replace(object, `"status": {`, `"status": {"conditions": [`+condition+`],`, 1)
	}

	// `refused` is a part of the refusal; a blank is a part of each. It is empty if the API server accepts the request.
	for _, test := range []struct{ name, user, method, path, contentType, body, refused string }{
		{"it reads its node", "system:node:node-1", "GET", own, "", "", ""},
		{"it writes the status of its node", "system:node:node-1", "PUT", own + "/status", "application/json", status("node-1"), ""},
		{"it may not write the status of another node", "system:node:node-1", "PUT", other + "/status", "application/json", status("node-3"), " "},
		{"it may not act as another node", "system:node:node-3", "PUT", other + "/status", "application/json", status("node-3"), " cannot "},
		{"it may not write a taint", "system:node:node-1", "PATCH", own, mergePatch, `{"spec":{"taints":[]}}`, " cannot "},
		{"it may not write the status without acting as the node", "", "PUT", own + "/status", "application/json", status("node-1"), " cannot "},
	} {
		t.Run(test.name, func(t *testing.T) {
			if answer := n.requestAs(t, token, test.user, test.method, test.path, test.contentType, test.body); !answeredAs(answer, test.refused) {
				t.Errorf("answer: %s\nwant a refusal with %q (none if empty)", answer, test.refused)
			}
		})
	}

	if seen := n.kubectl(t, "get", "node", "node-1", "-o", `jsonpath={.status.conditions[?(@.type=="qos.noderesource.dev/PluginReady")].status}`); seen != "True" {
		t.Errorf("the condition PluginReady of the node is %q, want True", seen)
	}
}
