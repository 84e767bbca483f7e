// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"os"
	"path/filepath"
	"testing"
)

// staticPodTakesASlot runs a static pod, which does not pass through the scheduler. The pod requests a class by annotation.
func staticPodTakesASlot(t *testing.T, n *node) {
	file := filepath.Join(staticPods, "unseen.yaml")
	manifest := pod{name: "unseen", annotations: map[string]string{"qos.noderesource.dev/pod": "blockio=gold"}}.manifest()
	must(t, os.WriteFile(file, []byte(manifest[:len(manifest)-len("\n---\n")]), 0o644))
	t.Cleanup(func() { _ = os.Remove(file) })
	n.running(t, "unseen-"+n.name)
	n.offered(t, "gold", "2", "1")
	n.createPods(t, pod{name: "seen", classes: []string{"blockio.gold"}}, pod{name: "waits", classes: []string{"blockio.gold"}})
	until(t, "one of two pods waits", func() (bool, string) {
		seen := n.phase("seen") + " " + n.phase("waits")
		return seen == "Running Pending" || seen == "Pending Running", seen
	})

	must(t, os.Remove(file))
	n.running(t, "seen", "waits")
	n.offered(t, "gold", "2", "2")
}
