// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// requiredPodsWaitForThePlugin stops and starts the plugin while pods that require the plugin are created. The plugin adds
// an annotation to each container of these pods. If a container lacks the annotation, the runtime has created the
// container without the plugin.
func requiredPodsWaitForThePlugin(t *testing.T, n *node, p *programs) {
	var pods []pod
	for i := range 12 {
		pods = append(pods, pod{name: fmt.Sprint("required-", i), classes: []string{"blockio.slow"}})
	}

	n.createPods(t, pods...)
	for range 5 {
		must(t, p.plugin.end(syscall.SIGTERM))
		p.back(t)
	}

	for _, pod := range pods {
		n.running(t, pod.name)
		info, err := n.ctr("--namespace", "k8s.io", "containers", "info", n.containerID(pod.name))
		if err != nil || !strings.Contains(info, "assigned.qos.noderesource.dev") {
			t.Errorf("container of %s was created without its class: %v\n%s", pod.name, err, info)
		}
		n.inClass(t, pod.name, "slow")
	}
}
