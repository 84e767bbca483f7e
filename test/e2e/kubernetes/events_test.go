// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"strings"
	"testing"
)

// misspelledClassIsReported reads the events that kubectl describe shows for a pod without a node.
func misspelledClassIsReported(t *testing.T, n *node) {
	n.createPods(t, pod{name: "misspelled", classes: []string{"blockio.glod"}})
	n.pending(t, "misspelled", "Insufficient qos.noderesource.dev/blockio.glod")
	untilSeen(t, "kubectl describe suggests the class", func() string { return n.kubectl(t, "describe", "pod", "misspelled") },
		"QOSClassNotOffered", "did you mean qos.noderesource.dev/blockio.gold?")
}

// eventsAreKept writes events as a user who may write events, and as one who may also write the status of NodeQOSResources.
func eventsAreKept(t *testing.T, n *node) {
	n.kubectl(t, "create", "clusterrole", "writes-events", "--verb=create", "--resource=events")
	n.kubectl(t, "create", "clusterrole", "writes-status", "--verb=patch", "--resource=nodeqosresources.qos.noderesource.dev/status")
	n.kubectl(t, "create", "clusterrolebinding", "writes-events", "--clusterrole=writes-events", "--user=tenant", "--user=publisher")
	n.kubectl(t, "create", "clusterrolebinding", "writes-status", "--clusterrole=writes-status", "--user=publisher")
	t.Cleanup(func() {
		n.kubectl(t, "delete", "clusterrolebinding", "writes-events", "writes-status")
		n.kubectl(t, "delete", "clusterrole", "writes-events", "writes-status")
	})

	const refused = "only the publisher of qos-kubelet-shim writes events about QoS classes"
	ours, others := eventOf("ours", "qos-kubelet-shim", "Pod"), eventOf("others", "kubelet", "Pod")
	reason := strings.Replace(others, `"reason":"Test"`, `"reason":"QOSClassChanged"`, 1)
	for _, test := range []struct{ name, user, event, want string }{
		{"an event of somebody else", "tenant", others, ""},
		{"an event of the shim", "tenant", ours, refused},
		{"an event about a class", "tenant", reason, refused},
		{"an event of the shim, by the publisher", "publisher", ours, ""},
	} {
		output, err := n.tryWith(test.event, "create", "--dry-run=server", "--as="+test.user, "-f", "-")
		if (err != nil) != (test.want != "") || !strings.Contains(output, test.want) {
			t.Errorf("%s: %v: %s, want %q", test.name, err, output, test.want)
		}
	}
}
