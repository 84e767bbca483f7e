// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestScheduling checks on which nodes the scheduler places pods. The nodes exist only in the API.
func TestScheduling(t *testing.T) {
	n := ready(t)
	n.apply(t, `{apiVersion: v1, kind: Namespace, metadata: {name: scheduling}}`)
	n.startProfiles(t)
	t.Run("spread puts pods where most of a class is free", func(t *testing.T) { scored(t, n, "qos-spread", 2) })
	t.Run("pack fills a node before the next", func(t *testing.T) { scored(t, n, "qos-pack", 4) })
	t.Run("a pod with a higher priority preempts a pod of the same class only", func(t *testing.T) { preemptsInClass(t, n) })
	t.Run("a pod fits an empty node group only if the group's template offers the pod's class", func(t *testing.T) { templateFits(t, n) })
}

// startProfiles runs a second scheduler with the profiles of deploy/scheduler.
func (n *node) startProfiles(t *testing.T) {
	t.Helper()
	profiles, err := os.ReadFile("../../../deploy/scheduler/profiles.yaml")
	must(t, err)
	kubeconfig := n.cluster.kubeconfig("scheduler")
	config := n.write(t, "profiles.yaml", string(profiles)+fmt.Sprintf(`leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
`, kubeconfig))
	n.startProcess(t, "kube-scheduler-profiles", n.program("kube-scheduler"), "--config", config,
		"--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=10359", "--cert-dir", n.cluster.file("profiles-certs"))
}

// fakeNode makes a node that has classes and no kubelet, so no pod runs there.
func (n *node) fakeNode(t *testing.T, name string, classes string) {
	t.Helper()
	n.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s, labels: {fake: "true"}}
`, name))
	t.Cleanup(func() { n.kubectl(t, "delete", "node", name) })
	resources := fmt.Sprintf(`{"cpu":"8","memory":"16Gi","pods":"110",%s}`, classes)
	n.kubectl(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"capacity":%s,"allocatable":%s,"conditions":[{"type":"Ready","status":"True","reason":"Fake"}]}}`, resources, resources))
}

// fakePods makes pods for fake nodes. They never run, and are gone at once when they are deleted.
func (n *node) fakePods(t *testing.T, more, class string, names ...string) {
	t.Helper()
	for _, name := range names {
		n.apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: scheduling}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {fake: "true"}
  %s
  containers: [{name: main, image: none, resources: {limits: {%s: 1}}}]
`, name, more, class))
		t.Cleanup(func() {
			n.kubectl(t, "-n", "scheduling", "delete", "pod", name, "--ignore-not-found", "--grace-period=0", "--force")
		})
		until(t, name+" is on a node, or is not", func() (bool, string) {
			seen, _ := n.try("-n", "scheduling", "get", "pod", name, "-o", "jsonpath={.spec.nodeName}{.status.conditions[*].message}")
			return seen != "", seen
		})
	}
}

func (n *node) placedOn(t *testing.T) map[string]int {
	t.Helper()
	placed := map[string]int{}
	for name := range strings.FieldsSeq(n.kubectl(t, "-n", "scheduling", "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")) {
		placed[name]++
	}
	return placed
}

// scored schedules four pods. Two nodes have room for four pods each. `want` is the number of pods that one of the nodes must get.
func scored(t *testing.T, n *node, profile string, want int) {
	const gold = "qos.noderesource.dev/rdt.gold"
	for _, name := range []string{"fake-1", "fake-2"} {
		n.fakeNode(t, name, `"`+gold+`":"4"`)
	}
	more := "schedulerName: " + profile
	n.fakePods(t, more, gold, "a", "b", "c", "d")
	placed := n.placedOn(t)
	if placed["fake-1"] != want && placed["fake-2"] != want {
		t.Errorf("four pods are placed %v by %s; want %d on one node", placed, profile, want)
	}
}

// preemptsInClass: the only node has one slot of the class.
func preemptsInClass(t *testing.T, n *node) {
	const gold = "qos.noderesource.dev/rdt.gold"
	n.fakeNode(t, "fake-1", `"`+gold+`":"1"`)
	n.apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}`)
	n.fakePods(t, "", gold, "low")
	n.fakePods(t, "priorityClassName: urgent", gold, "urgent")
	n.awaitField(t, "the urgent pod has the class", "urgent fake-1",
		"{range .items[*]}{.metadata.name} {.spec.nodeName} {end}", "-n", "scheduling", "pods")
}

// templateFits makes the node that a cluster autoscaler would derive from the tags of a node group. The autoscaler
// simulates scheduling with the scheduler's own filter, so the test uses the scheduler.
func templateFits(t *testing.T, n *node) {
	const prefix = "k8s.io/cluster-autoscaler/node-template/resources/"
	tags := map[string]string{prefix + "qos.noderesource.dev/rdt.gold": "4", prefix + "qos.noderesource.dev/rdt.bronze": "1000"}
	var classes []string
	for tag, amount := range tags {
		classes = append(classes, fmt.Sprintf("%q:%q", strings.TrimPrefix(tag, prefix), amount))
	}

	n.fakeNode(t, "template", strings.Join(classes, ","))
	n.fakePods(t, "", "qos.noderesource.dev/rdt.gold", "fits")
	n.fakePods(t, "", "qos.noderesource.dev/rdt.silver", "fits-not")
	if placed := n.placedOn(t); placed["template"] != 1 {
		t.Errorf("the pods are placed %v, want one on the template", placed)
	}

	seen := n.kubectl(t, "-n", "scheduling", "get", "pod", "fits-not", "-o", "jsonpath={.status.conditions[*].message}")
	if !strings.Contains(seen, "Insufficient qos.noderesource.dev/rdt.silver") {
		t.Errorf("the conditions of a pod that does not fit the template are: %s", seen)
	}
}
