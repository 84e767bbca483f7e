// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nri0123_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// memoryLimit is the plugin's memory limit in the DaemonSet, in bytes.
const memoryLimit = 256 << 20

// needsLittleMemory runs pods with large annotations. Half of the pods have large labels, and the others have containers with large
// environment variables. The sizes are the largest that NRI can transfer, because four pods with their containers fill a message of 4 MiB.
func needsLittleMemory(t *testing.T, r *rig) {
	const containers, size, annotations = 220, 740 << 10, 240 << 10
	for i := range containers {
		p := nriruntime.PodConfig{Name: fmt.Sprint("p", i), Annotations: map[string]string{
			"container.qos.noderesource.dev/main": "blockio=heavy", "large": strings.Repeat("x", annotations),
		}}
		c := nriruntime.ContainerConfig{Name: "main"}
		if i%2 == 0 {
			p.Labels = largeLabels(size)
		} else {
			c.Env = []string{"LARGE=" + strings.Repeat("x", size)}
		}
		r.runWith(t, p, c)
	}

	p := r.start(t)
	for i := range 3 {
		must(t, r.Restart())
		r.wait(t, i+2)
	}

	if got := strings.Count(r.assignments(t), "k8s.io/blockio"); got != containers {
		t.Errorf("%d containers are reported, want %d", got, containers)
	}

	if took := p.status(t, "VmHWM"); took > memoryLimit>>10 {
		t.Errorf("at most %d MiB of memory were in use", took>>10)
	}
}

// largeLabels returns labels of a size in bytes, with the longest values that Kubernetes allows.
func largeLabels(size int) map[string]string {
	labels, value := map[string]string{}, strings.Repeat("x", 63)
	for i := range size / len("k0000"+value) {
		labels[fmt.Sprintf("k%04d", i)] = value
	}
	return labels
}
