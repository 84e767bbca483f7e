// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const highResources = `
- name: ` + profileQoS + `
  linux: {classes: {high: {memory: {high: 75%}, cpu: {burst: 50%}}}}
`

// swapOfKubelet: a container of a class without a swap limit keeps the swap limit of the kubelet (LimitedSwap), also
// after resizes, like a container without a class.
func swapOfKubelet(t *testing.T, n *node) {
	n.offer(t, highResources, profileQoS, "high")
	p := n.runPod(t, "swap-of-kubelet", map[string]string{keyOf("main"): profileQoS + "=high"})
	const memory, swap = 64 << 20, 16 << 20
	resources := func(quota int64) *cri.LinuxContainerResources {
		r := limited(memory, quota)
		r.Unified["memory.swap.max"] = fmt.Sprint(swap) // configureSwap of pkg/kubelet/kuberuntime/kuberuntime_container_linux.go
		return r
	}
	for _, name := range []string{"plain", "main"} {
		c := p.run(t, spec{name: name, resources: resources(50_000)})
		c.wantValues(t, map[string]string{"memory.swap.max": "16777216"})
		for _, quota := range []int64{80_000, 20_000} {
			c.resize(t, resources(quota))
			t.Logf("container %s with quota %d", name, quota)
			c.wantValues(t, map[string]string{"memory.swap.max": "16777216"})
		}
	}
}
