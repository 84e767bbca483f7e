// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// deployment has one pod, which asks by annotation, and a budget that lets it go never.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: tenant, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: &labels {app: tenant}}
  template:
    metadata:
      labels: *labels
      annotations: {container.qos.noderesource.dev/main: blockio=slow}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "` + workloadImage + `", imagePullPolicy: Never}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: tenant, namespace: default}
spec:
  maxUnavailable: 0
  selector: {matchLabels: {app: tenant}}
`

// evicting are class files that evict, without the class slow; draining are those of all tests without it.
var (
	draining = strings.Replace(fmt.Sprintf(classes, 2), "  - {name: slow}\n", "", 1)
	evicting = strings.Replace(draining, "  defaultClass:", "  onClassRemoved: evict\n  defaultClass:", 1)
)

// deployed returns the deployment's pod, which runs in the class slow. In the end all is as it was.
func (n *node) deployed(t *testing.T, p installation) (name string) {
	t.Helper()
	n.apply(t, deployment)
	t.Cleanup(func() {
		p.setClasses(t, fmt.Sprintf(classes, 2))
		n.kubectl(t, "delete", "--wait", within, "deployment/tenant", "pdb/tenant", "--ignore-not-found")
		n.kubectl(t, "wait", "--for=delete", within, "pod", "-l", "app=tenant")
		n.offered(t, "slow", "1k", "1k")
	})
	name = n.tenant(t, "")
	n.running(t, name)
	n.inClass(t, name, "slow")
	return name
}

// evictionsAreAskedFor takes away a class with what runs in it: first as by default, then with evictions, against a budget and without one.
func evictionsAreAskedFor(t *testing.T, n *node, p installation) {
	n.run(t, pod{name: "by-default"})
	n.running(t, "by-default")
	first := n.deployed(t, p)
	before := n.containerID(first)
	p.setClasses(t, draining)
	until(t, "slow drains", func() (bool, string) {
		seen := n.shell(t, "status")
		return strings.Contains(seen, "draining: "), seen
	})
	if seen := n.shell(t, "assignments"); strings.Contains(seen, "TO BE EVICTED") {
		t.Errorf("a class that drains has somebody evicted:\n%s", seen)
	}

	p.setClasses(t, evicting)
	n.event(t, first, "QOSClassRemoved", "as soon as its PodDisruptionBudget allows it")
	if got := n.containerID(first); got != before {
		t.Errorf("in spite of its budget, the pod has container %q; it had %s", got, before)
	}
	n.kubectl(t, "delete", "pdb", "tenant")
	second := n.tenant(t, first)
	n.condition(t, second, `False UnknownClass: `)
	n.running(t, "by-default")
	n.inClass(t, "by-default", "standard")

	// The class is back, and so is the pod that asks for it.
	p.setClasses(t, fmt.Sprintf(classes, 2))
	n.running(t, second)
	n.inClass(t, second, "slow")
}

// evictionNeedsItsRight is of the installation whose shim has the rights of the manifests alone.
func evictionNeedsItsRight(t *testing.T, n *node, d *daemonSet) {
	const right = "../../../deploy/kubernetes-eviction"
	first := n.deployed(t, d)
	n.kubectl(t, "delete", "pdb", "tenant")
	d.setClasses(t, evicting)
	until(t, "the shim says what it lacks", func() (bool, string) {
		seen := d.said("kubectl apply -k deploy/kubernetes-eviction")
		return len(seen) == 1, strings.Join(seen, "")
	})
	if now := n.tenant(t, ""); now != first {
		t.Errorf("the pod %s was replaced by %s without the right to evict it", first, now)
	}
	n.kubectl(t, "apply", "-k", right)
	t.Cleanup(func() { n.kubectl(t, "delete", "-k", right) })
	n.condition(t, n.tenant(t, first), "False UnknownClass: ")
}

// tenant waits for the deployment's pod, which is another than the one before, and returns its name.
func (n *node) tenant(t *testing.T, before string) (name string) {
	t.Helper()
	until(t, "the deployment has a pod other than "+before, func() (bool, string) {
		output, _ := n.try("get", "pods", "-l", "app=tenant", "-o", "jsonpath={.items[*].metadata.name}")
		name = output
		return name != "" && name != before && !strings.Contains(name, " "), output
	})
	return name
}
