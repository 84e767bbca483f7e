// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// linuxClasses extends the class file of a VM with a resource of the kind linux.
const linuxClasses = `- name: qos.noderesource.dev/memory
  classes: [{name: throttled}]
  linux: {classes: {throttled: {memory: {min: 25%, high: 50%, oomGroup: false}}}}
`

// twoContainers is a pod whose containers have the same memory. Only main has a class.
const twoContainers = `apiVersion: v1
kind: Pod
metadata:
  name: memory
  namespace: default
  annotations: {container.qos.noderesource.dev/main: qos.noderesource.dev/memory=throttled}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/workload:1
    imagePullPolicy: Never
    resources: {requests: {memory: 128Mi}, limits: {memory: 256Mi}}
  - name: plain
    image: localhost/workload:1
    imagePullPolicy: Never
    resources: {requests: {memory: 128Mi}, limits: {memory: 256Mi}}
`

// larger doubles the memory limit of both containers.
const larger = `{"spec": {"containers": [
  {"name": "main", "resources": {"limits": {"memory": "512Mi"}}},
  {"name": "plain", "resources": {"limits": {"memory": "512Mi"}}}]}}`

// classWinsOverKubelet checks values of a class that the kubelet writes, too: memory.oom.group and, with MemoryQoS,
// memory.min and .high. A resize keeps the class, with a share of the new limit. A container that leaves the class gets
// the same values as the other container.
func classWinsOverKubelet(t *testing.T, n *node) {
	n.apply(t, twoContainers)
	t.Cleanup(func() { n.delete(t, "memory") })
	n.running(t, "memory")
	main, plain := n.cgroupOf(t, "main"), n.cgroupOf(t, "plain")
	n.has(t, main, map[string]string{"memory.min": "67108864", "memory.high": "134217728", "memory.oom.group": "0"})

	n.kubectl(t, "patch", "pod", "memory", "--subresource=resize", "-p", larger)
	doubled := map[string]string{"memory.max": "536870912", "memory.min": "134217728", "memory.high": "268435456", "memory.oom.group": "0"}
	n.has(t, main, doubled)
	n.has(t, plain, map[string]string{"memory.max": "536870912"})
	n.restartKubelet(t)
	n.awaitNode(t)
	n.has(t, main, doubled)

	kubelets, err := n.read(plain, doubled)
	must(t, err)
	n.qos(t, "set", "memory", "-c", "main", "qos.noderesource.dev/memory=", within)
	n.has(t, main, kubelets)
	if got := n.cgroupOf(t, "main"); got != main {
		t.Error("a resize or a change of class has replaced the container main")
	}
}

// cgroupOf returns the cgroup of a container of the pod "memory".
func (n *node) cgroupOf(t *testing.T, container string) string {
	t.Helper()
	id := n.of("memory", `{.status.containerStatuses[?(@.name=="`+container+`")].containerID}`)
	dir, err := n.machine.cgroup(strings.TrimPrefix(id, "containerd://"))
	must(t, err)
	return filepath.Join(cgroupRoot, dir)
}

// has waits until the files of a cgroup have these values.
func (n *node) has(t *testing.T, cgroup string, want map[string]string) {
	t.Helper()
	until(t, fmt.Sprint("the values in ", cgroup, " are ", want), func() (bool, string) {
		seen, err := n.read(cgroup, want)
		return err == nil && maps.Equal(seen, want), fmt.Sprint(seen, err)
	})
}

// read returns the values of the files of a cgroup that have the names of `files`.
func (n *node) read(cgroup string, files map[string]string) (map[string]string, error) {
	values := map[string]string{}
	for name := range files {
		value, err := n.machine.run("cat", filepath.Join(cgroup, name))
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, value)
		}
		values[name] = strings.TrimSpace(value)
	}
	return values, nil
}
