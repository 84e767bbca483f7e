// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestPrograms uses plugin and shim as programs of the machine. A short run leaves out slow cases that TestDaemonSet has too.
func TestPrograms(t *testing.T) {
	n := ready(t)
	p := n.install(t, "--follow-annotations")
	t.Cleanup(func() { n.kubectl(t, "delete", "--ignore-not-found", "-f", crd) }) // Helm refuses to install over an existing CRD
	t.Run("a missing CRD is one line in the log", func(t *testing.T) { missingCRD(t, n, p) })
	t.Run("capacity is in the node's status", func(t *testing.T) { capacityIsPublished(t, n) })
	t.Run("invalid requests are refused", func(t *testing.T) { wrongRequestsAreRefused(t, n) })
	runNightly(t, "the scheduler counts classes", func(t *testing.T) { schedulerCounts(t, n) })
	t.Run("a higher priority preempts", func(t *testing.T) { priorityPreempts(t, n) })
	t.Run("restarts leave pods alone", func(t *testing.T) { restartsLeavePodsAlone(t, n, p) })
	t.Run("reports agree with the kernel", n.holds)
	runNightly(t, "classes are added, removed and changed", func(t *testing.T) { classesChange(t, n, p) })
	t.Run("reports agree with the kernel", n.holds)
	t.Run("a capacity below the used slots ends no container", func(t *testing.T) { capacityBelowUse(t, n, p) })
	t.Run("pods of a removed class are evicted if onClassRemoved is evict", func(t *testing.T) { evictionsAreAskedFor(t, n, p) })
	t.Run("a static pod takes a slot", func(t *testing.T) { staticPodTakesASlot(t, n) })
	t.Run("pods that request a class are not scheduled while the plugin is stopped", func(t *testing.T) { pluginAway(t, n, p) })
	t.Run("reports agree with the kernel", n.holds)
	runNightly(t, "the node's object and the pods show the assignments", func(t *testing.T) { assignmentsArePublished(t, n, true) })
	t.Run("a class changed by hand is reported and counted", func(t *testing.T) { changedByHand(t, n) })
	t.Run("refusals are reported on the pod", func(t *testing.T) { refusalsAreReported(t, n) })
	t.Run("annotations that request nothing are reported on the pod", func(t *testing.T) { typosAreReported(t, n) })
	t.Run("a changed annotation changes the class of a running container", func(t *testing.T) { annotationsAreFollowed(t, n) })
	runNightly(t, "after a failure of the API server, the shim publishes what has changed", func(t *testing.T) { serverAway(t, n, p) })
	t.Run("the shim writes little to the API server", func(t *testing.T) { writesAreFew(t, n, p) })
	t.Run("reports agree with the kernel", n.holds)
}

// capacityIsPublished: a class without a capacity, such as slow, has 1000 devices.
func capacityIsPublished(t *testing.T, n *node) {
	n.offered(t, "gold", "2", "2")
	n.offered(t, "silver", "1", "1")
	n.offered(t, "slow", "1k", "1k")
}

// wrongRequestsAreRefused runs pods with requests that the scheduler accepts, and the node refuses.
func wrongRequestsAreRefused(t *testing.T, n *node) {
	n.createPods(t,
		pod{name: "two-units", classes: []string{"blockio.gold"}, units: 2},
		pod{name: "two-classes", classes: []string{"blockio.silver", "blockio.slow"}},
		pod{name: "contradicts", classes: []string{"blockio.slow"}, annotations: map[string]string{"container.qos.noderesource.dev/main": "blockio=silver"}},
	)
	for pod, why := range map[string]string{
		"two-units": "a container can have only one unit", "two-classes": "two classes", "contradicts": "contradicts the allocated class",
	} {
		n.awaitInField(t, pod+" is refused: "+why, why, "{.status.message} {.status.containerStatuses[*].state.waiting.message}", "pod", pod)
	}
}

// schedulerCounts runs a pod without a request, and pods that request a class by extended resource only. The pods fill
// the capacity of the class. One more pod stays pending until another pod is deleted.
func schedulerCounts(t *testing.T, n *node) {
	gold := n.asks("gold")
	n.runPods(t, pod{name: "first", classes: gold}, pod{name: "second", classes: gold}, pod{name: "asks-not"})
	n.inClass(t, "first", "gold")
	n.inClass(t, "asks-not", "standard")
	if got := n.shell(t, "assignments", "default/first"); !regexp.MustCompile(`gold +allocated`).MatchString(got) {
		t.Errorf("assignments:\n%s\nwant gold, allocated", got)
	}
	n.replaces(t, pod{name: "third", classes: gold}, "first", "Insufficient qos.noderesource.dev/blockio.gold")
	n.inClass(t, "third", "gold")
}

// priorityPreempts: silver has one slot.
func priorityPreempts(t *testing.T, n *node) {
	n.apply(t, `{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 1000}`)
	n.runPods(t, pod{name: "low", classes: []string{"blockio.silver"}})
	n.runPods(t, pod{name: "high", classes: []string{"blockio.silver"}, priority: "high"})
	n.inClass(t, "high", "silver")
	untilRefused(t, "the pod of low priority is gone", "NotFound", func() (string, error) { return n.try("get", "pod", "low") })
}

// restartsLeavePodsAlone kills one program after another while pods run.
func restartsLeavePodsAlone(t *testing.T, n *node, p installation) {
	n.createPods(t,
		pod{name: "stays", classes: []string{"blockio.gold"}}, pod{name: "stays-too"},
		pod{name: "had-init", init: "blockio.silver"}, pod{name: "loops", classes: []string{"blockio.slow"}, loops: true})

	n.running(t, "stays", "stays-too", "had-init")
	until(t, "the container that ends has been started again", func() (bool, string) {
		seen := n.of("loops", "{.status.containerStatuses[0].restartCount}")
		return seen != "" && seen != "0", seen
	})

	same := n.sameContainers(t, "stays", "stays-too")
	for _, restart := range []struct {
		name string
		do   func()
	}{
		{"kubelet", func() { n.restartKubelet(t) }},
		{"shim", func() { p.killShim(t) }},
		{"plugin", func() { p.killPlugin(t) }},
		{"all-three", func() {
			n.kubelet.mustEnd(t, syscall.SIGKILL)
			p.killShim(t)
			p.killPlugin(t)
			n.kubelet.mustStart(t)
		}},
	} {
		restart.do()
		p.back(t)
		// A kubelet that has just started refuses new pods until it knows which of its earlier pods are gone. Therefore
		// the test first runs a pod without a request.
		n.runPods(t, pod{name: "plain-" + restart.name})
		n.offered(t, "gold", "2", "2")
		// A new pod with a request shows that all parts work together again.
		after := "after-" + restart.name
		n.runPods(t, pod{name: after, classes: []string{"blockio.gold"}})
		n.inClass(t, after, "gold")
		n.inClass(t, "stays", "gold")
		same("a restart of " + restart.name)
		// A kubelet that starts admits its pods again. It then needs devices for containers that do not run: the
		// container of "loops" may be between two restarts, and the init container of "had-init" has ended. If the shim
		// is down too, there are no devices, and these pods may fail: see "Limits" in docs/shim.md.
		for _, pod := range []string{"loops", "had-init"} {
			if phase := n.phase(pod); phase != "Running" && restart.name != "all-three" {
				t.Errorf("after a restart of %s pod %s is %s: %s", restart.name, pod, phase, n.of(pod, "{.status.message}"))
			}
		}
		n.delete(t, after)
	}
}

// restartKubelet kills the kubelet and starts it again.
func (n *node) restartKubelet(t *testing.T) {
	t.Helper()
	n.kubelet.mustEnd(t, syscall.SIGKILL)
	n.kubelet.mustStart(t)
}

// classesChange raises the capacity of gold to 5, and renames the class slow while a pod has it. Then it applies the
// first class file again.
func classesChange(t *testing.T, n *node, p installation) {
	n.runPods(t, pod{name: "in-slow", classes: []string{"blockio.slow"}})
	p.setClasses(t, strings.NewReplacer("name: slow", "name: fast", "slow: [", "fast: [").Replace(fmt.Sprintf(classes, 5)))
	n.offered(t, "gold", "5", "5")
	n.offered(t, "fast", "1k", "1k")
	n.offered(t, "slow", "1", "1") // the device in use stays until the class has drained
	n.inClass(t, "in-slow", "slow")
	n.delete(t, "in-slow")
	n.offered(t, "slow", "0", "0")
	n.setGold(t, p, 2)
	n.offered(t, "gold", "2", "2")
	n.offered(t, "slow", "1k", "1k")
}

func capacityBelowUse(t *testing.T, n *node, p installation) {
	t.Cleanup(func() { p.setClasses(t, fmt.Sprintf(classes, 2)) })
	gold := []string{"blockio.gold"}
	n.runPods(t, pod{name: "one", classes: gold}, pod{name: "two", classes: gold})
	same := n.sameContainers(t, "one", "two")
	n.setGold(t, p, 1)
	n.offered(t, "gold", "2", "2") // devices in use stay in the capacity
	n.createPods(t, pod{name: "third", classes: gold})
	n.pending(t, "third", "Insufficient qos.noderesource.dev/blockio.gold")
	n.delete(t, "third")
	n.restartKubelet(t)
	p.back(t)
	n.offered(t, "gold", "2", "2")
	n.running(t, "one", "two")
	same("a restart of the kubelet with a capacity below the use")

	// Until the node's status is updated, the scheduler would count the slot of "one" as free.
	n.delete(t, "one")
	n.offered(t, "gold", "1", "1")
	n.replaces(t, pod{name: "more", classes: gold}, "two", "Insufficient qos.noderesource.dev/blockio.gold")
	n.setGold(t, p, 2)
	n.offered(t, "gold", "2", "2")
}

// setGold changes the capacity of gold, and waits until the plugin has applied it. The other classes do not change.
func (n *node) setGold(t *testing.T, p installation, capacity int) {
	t.Helper()
	p.setClasses(t, fmt.Sprintf(classes, capacity))
	until(t, fmt.Sprintf("gold has capacity %d", capacity), func() (bool, string) {
		seen := n.shell(t, "status")
		found, err := regexp.MatchString(fmt.Sprintf(`(?m)^k8s.io/blockio +gold +%d `, capacity), seen)
		return err == nil && found, seen
	})
}

// pluginAway kills the plugin. A new pod waits until the plugin is back, and a running pod keeps its container.
func pluginAway(t *testing.T, n *node, p *programs) {
	n.runPods(t, pod{name: "runs", classes: []string{"blockio.gold"}})
	same := n.sameContainers(t, "runs")
	p.plugin.mustEnd(t, syscall.SIGKILL)
	t.Cleanup(func() { p.back(t) })
	n.offered(t, "gold", "2", "1") // devices in use stay
	n.createPods(t, pod{name: "comes", classes: []string{"blockio.gold"}})
	n.pending(t, "comes", "Insufficient qos.noderesource.dev/blockio.gold")
	p.back(t)
	n.offered(t, "gold", "2", "2")
	n.running(t, "comes")
	same("the absence of the plugin")
}
