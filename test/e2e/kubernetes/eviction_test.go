// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"strings"
	"testing"
)

// deployment has one pod, which requests a class by annotation, and a PodDisruptionBudget that never allows its
// eviction.
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

// draining is the class file of the tests, but without the class slow. evicting is the same file with onClassRemoved: evict.
var (
	draining = strings.Replace(fmt.Sprintf(classes, 2), "  - {name: slow}\n", "", 1)
	evicting = strings.Replace(draining, "  defaultClass:", "  onClassRemoved: evict\n  defaultClass:", 1)
)

// deployed creates the deployment, and returns its pod, which runs in the class slow. At the end of the test, it
// restores the class file and deletes the deployment.
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

// evictionsAreAskedFor removes the class of a running pod: first with the default policy, then with onClassRemoved:
// evict while a PodDisruptionBudget forbids the eviction, and then without the budget.
func evictionsAreAskedFor(t *testing.T, n *node, p installation) {
	n.runPods(t, pod{name: "by-default"})
	first := n.deployed(t, p)
	same := n.sameContainers(t, first)
	p.setClasses(t, draining)
	untilSeen(t, "slow drains", func() string { return n.shell(t, "status") }, "draining: ")

	if seen := n.shell(t, "assignments"); strings.Contains(seen, "TO BE EVICTED") {
		t.Errorf("a pod is to be evicted although onClassRemoved is not evict:\n%s", seen)
	}

	p.setClasses(t, evicting)
	n.event(t, first, "QOSClassRemoved", "as soon as its PodDisruptionBudget allows it")
	same("an eviction that the budget of the pod forbids")

	n.kubectl(t, "delete", "pdb", "tenant")
	second := n.tenant(t, first)
	n.condition(t, second, `False UnknownClass: `)
	n.running(t, "by-default")
	n.inClass(t, "by-default", "standard")

	// When the class is offered again, the new pod gets it.
	p.setClasses(t, fmt.Sprintf(classes, 2))
	n.running(t, second)
	n.inClass(t, second, "slow")
}

// evictionNeedsItsRight checks that a shim with only the rights of deploy/kubernetes reports the missing right and
// evicts no pod, and that it evicts the pod when it has the right.
func evictionNeedsItsRight(t *testing.T, n *node, d *daemonSet) {
	const right = "../../../deploy/kubernetes-eviction"
	first := n.deployed(t, d)
	n.kubectl(t, "delete", "pdb", "tenant")
	d.setClasses(t, evicting)
	until(t, "the shim reports the missing permission", func() (bool, string) {
		seen := d.said("kubectl apply -k deploy/kubernetes-eviction")
		return len(seen) == 1, strings.Join(seen, "")
	})

	if now := n.tenant(t, ""); now != first {
		t.Errorf("the pod %s was replaced by %s, although the shim may not evict it", first, now)
	}

	n.kubectl(t, "apply", "-k", right)
	t.Cleanup(func() { n.kubectl(t, "delete", "-k", right) })
	n.condition(t, n.tenant(t, first), "False UnknownClass: ")
}

// tenant waits until the deployment has only one pod, with another name than `before`. It returns the name.
func (n *node) tenant(t *testing.T, before string) (name string) {
	t.Helper()
	until(t, "the deployment has a pod other than "+before, func() (bool, string) {
		output, _ := n.try("get", "pods", "-l", "app=tenant", "-o", "jsonpath={.items[*].metadata.name}")
		name = output
		return name != "" && name != before && !strings.Contains(name, " "), output
	})
	return name
}
