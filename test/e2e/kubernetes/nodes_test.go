// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// kindLabel is the label by which the chart assigns nodes to pools.
const kindLabel = "node.example/kind"

// pool is a node with class files of its own.
type pool struct {
	*node
	kind string // its label, and the name of the pool
	gold int    // the capacity of the class gold
}

// pools are the two nodes of a cluster.
type pools []*pool

// TestNodes uses a cluster of two nodes with different class files. The first node is this machine, and the second one a VM with RDT. In
// the last case, another VM joins them.
func TestNodes(t *testing.T) {
	skipNightly(t)
	n := ready(t)
	virtual := n.another(t, addresses[1])
	v := &vm{vendor: "intel"}
	virtual.joinVirtual(t, v)
	both := pools{{node: n, kind: "small", gold: 2}, {node: virtual, kind: "large", gold: 3}}
	both.install(t, fmt.Sprintf(classes, both[0].gold), virtualClasses(both[1].gold, fullBandwidth))

	for _, c := range []virtualCase{
		{"each node offers the classes of its class file", func(t *testing.T) { nodesDiffer(t, both) }},
		{"pods run where their class is free", func(t *testing.T) { placedByClass(t, both) }},
		{"an update of one node after the other leaves pods alone", func(t *testing.T) { updatedNodeByNode(t, both) }},
		// The third node stays until `t` ends, and not only until the case `inner` ends.
		{"changed limits of PersistentVolumeClaims wait until the node is back, and follow the pod to another node", func(inner *testing.T) { claimsOnNodes(inner, t, both, v) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t)
			for _, pool := range both {
				pool.holds(t) // while its pods run
			}
		})
	}
}

// install installs the chart with a pool for each node, as docs/kubernetes.md describes.
func (p pools) install(t *testing.T, classFiles ...string) {
	t.Helper()
	n := p[0].node
	var values []map[string]any
	for i, pool := range p {
		n.kubectl(t, "label", "node", pool.name, kindLabel+"="+pool.kind)
		t.Cleanup(func() { n.kubectl(t, "label", "node", pool.name, kindLabel+"-") })
		values = append(values, map[string]any{
			"name": pool.kind, "nodeLabels": map[string]string{kindLabel: pool.kind}, "classFiles": map[string]string{"classes.yaml": classFiles[i]},
		})
	}

	text, err := json.Marshal(map[string]any{
		"pools": values, "followAnnotations": true, "publisher": map[string]any{"args": []string{"--follow-claims"}}, "crds": map[string]bool{"keep": false},
	})

	must(t, err)

	n.helm(t, "install", "qos", deploy+"chart", "-n", "qos-system", "--create-namespace", "-f", n.write(t, "pools.yaml", string(text)))
	t.Cleanup(func() {
		n.helm(t, "uninstall", "qos", "-n", "qos-system")
		n.kubectl(t, "delete", "namespace", "qos-system", within)
	})

	for _, pool := range p {
		pool.rolledOut(t)
	}
}

func (p *pool) rolledOut(t *testing.T) {
	t.Helper()
	for _, name := range []string{"daemonset/qos-nri-plugin-" + p.kind, "daemonset/qos-publisher"} {
		p.kubectl(t, "-n", "qos-system", "rollout", "status", name, within)
	}
}

func nodesDiffer(t *testing.T, p pools) {
	small, large := p[0], p[1]
	small.offered(t, "gold", "2", "2")
	large.offered(t, "gold", "3", "3") // also of RDT
	if seen := small.kubectl(t, "get", "node", small.name, "-o", "jsonpath={.status.capacity}"); strings.Contains(seen, "qos.noderesource.dev/rdt") {
		t.Errorf("the node without RDT offers %s, want no class of rdt", seen)
	}
	awaitLines(t, func() string { return small.qos(t, "nodes") },
		small.name+" True k8s.io/blockio gold (0/2) silver (0/1)", large.name+" True k8s.io/blockio gold (0/3) silver (0/1)")
}

// placedByClass runs pods whose class only one node offers, and pods whose class is full on one node or on both.
func placedByClass(t *testing.T, p pools) {
	small, large := p[0], p[1]
	small.runPods(t, pod{name: "needs-rdt", classes: large.asks("gold")})
	if got := p.of(t, "needs-rdt"); got != large {
		t.Errorf("a pod with a class of RDT runs on %s", got.name)
	}

	large.inClass(t, "needs-rdt", "gold")
	large.holders(t, "gold", "default/needs-rdt/main")
	small.holders(t, "gold")

	silver := []string{"blockio.silver"}
	small.runPods(t, pod{name: "first", classes: silver}, pod{name: "other", classes: silver})
	first, other := p.of(t, "first"), p.of(t, "other")
	if first == other {
		t.Errorf("both pods run on %s, whose class has one slot", first.name)
	}

	first.inClasses(t, "first", "silver", "standard")
	other.inClasses(t, "other", "silver", "standard")

	small.createPods(t, pod{name: "waits", classes: silver})
	small.pending(t, "waits", "Insufficient qos.noderesource.dev/blockio.silver")
	small.delete(t, "first")
	small.running(t, "waits")
	if got := p.of(t, "waits"); got != first {
		t.Errorf("the free slot was on %s, but the pod runs on %s", first.name, got.name)
	}

	first.inClasses(t, "waits", "silver", "standard")
}

// of returns the pool of the node on which a pod runs.
func (p pools) of(t *testing.T, pod string) *pool {
	t.Helper()
	name := p[0].of(pod, "{.spec.nodeName}")
	for _, pool := range p {
		if pool.name == name {
			return pool
		}
	}
	t.Fatalf("pod %s is on the node %q", pod, name)
	return nil
}

// updatedNodeByNode replaces the plugin and the publisher of one node and then of the other, while pods run and are created.
func updatedNodeByNode(t *testing.T, p pools) {
	ids := map[string]string{}
	for _, pool := range p {
		name := "stays-" + pool.kind
		pool.runPods(t, pod{name: name, classes: pool.asks("gold"), node: pool.name})
		ids[name] = pool.containerID(name)
	}

	const whole = "stays-whole" // on the VM, because classes of whole pods need cgroup v2
	p[1].runPods(t, pod{name: whole, annotations: map[string]string{podAnnotation: "qos.noderesource.dev/pod-blockio=slow"}, node: p[1].name})
	p[1].offers(t, "pod-blockio.slow", "1", "0")
	ids[whole] = p[1].containerID(whole)

	for i, updated := range p {
		other := p[1-i]
		watched := other.watch(t, "watch", "node", other.name, "-o", `jsonpath={.status.capacity} {.status.allocatable}{"\n"}`)
		updated.kubectl(t, "-n", "qos-system", "rollout", "restart", "daemonset/qos-nri-plugin-"+updated.kind)
		updated.kubectl(t, "-n", "qos-system", "delete", "pod", "-l", "app.kubernetes.io/name=qos-publisher", "--field-selector=spec.nodeName="+updated.name, within)
		here, there := "here-"+updated.kind, "there-"+updated.kind
		updated.createPods(t, pod{name: here, node: updated.name}, pod{name: there, node: other.name, classes: other.asks("gold")})
		updated.rolledOut(t)
		updated.offered(t, "gold", fmt.Sprint(updated.gold), fmt.Sprint(updated.gold))
		updated.running(t, here, there)
		updated.inClass(t, here, "standard")
		other.inClass(t, there, "gold")
		watched.sameThroughout(t)
		for _, pool := range p {
			pool.inClass(t, "stays-"+pool.kind, "gold")
		}
		p[1].condition(t, whole, "pod-blockio slow")
		for name, id := range ids {
			if got := updated.containerID(name); got != id {
				t.Errorf("the update on %s has ended the container of %s", updated.name, name)
			}
		}
	}
}

// sameThroughout ends the watch, and checks that it has seen no change.
func (w watch) sameThroughout(t *testing.T) {
	t.Helper()
	must(t, w.end(syscall.SIGTERM))
	if seen := slices.Compact(w.lines(t)); len(seen) != 1 || !strings.Contains(seen[0], "qos.noderesource.dev/blockio.gold") {
		t.Errorf("the resources of the node have changed:\n%s", strings.Join(seen, ""))
	}
}

// claimsOnNodes runs a pod with PersistentVolumeClaims on the second node, and later on a third node. The third node
// stays in the cluster until the parent test `outer` ends.
func claimsOnNodes(t, outer *testing.T, p pools, v *vm) {
	small, large := p[0], p[1]
	uncordon := small.cordon(t) // only the VMs have the CSI driver
	large.startDriver(t, v)
	large.startClaimStatus(t)
	large.useVolumes(t, v)
	uncordon()
	device := large.loopDevice(t, v, "csi")
	large.setAttributes(t, "csi", "csi-gold")
	large.claimStatus(t, "csi", "csi-gold")
	large.limited(t, "csi", device+" "+goldLimits)

	nodeAway(t, p, v)
	large.claimStatus(t, "csi", "csi-silver")
	large.limited(t, "csi", device+" "+silverLimits)

	w := &vm{vendor: "amd"}
	other := &pool{node: large.another(outer, addresses[2]), kind: large.kind, gold: large.gold}
	other.joinVirtual(outer, w)
	other.kubectl(t, "label", "node", other.name, kindLabel+"="+other.kind)
	other.serveVolumes(t, w, csiVolumes)
	other.offered(t, "gold", fmt.Sprint(other.gold), fmt.Sprint(other.gold))
	small.cordon(t)
	large.cordon(t)
	podMoves(t, large, other, w)
}

// cordon keeps new pods from the node until the returned function is called, or until the test ends.
func (n *node) cordon(t *testing.T) (uncordon func()) {
	t.Helper()
	n.kubectl(t, "cordon", n.name)
	uncordon = func() { n.kubectl(t, "uncordon", n.name) }
	t.Cleanup(uncordon)
	return uncordon
}

// nodeAway pauses the VM while a pod with claims runs there. While the VM is paused, the test changes the class of one of
// the claims from gold to silver.
func nodeAway(t *testing.T, p pools, v *vm) {
	small, large := p[0], p[1]
	resume := v.pause(t)
	defer resume()
	large.setAttributes(t, "csi", "csi-silver")
	large.claimStatus(t, "csi", "csi-gold InProgress csi-silver")
	large.awaitInField(t, "the claim names the node", "pod default/csi on node "+large.name+": ", "{.status.conditions}", "pvc", "csi")
	small.runPods(t, pod{name: "beside", classes: small.asks("gold"), node: small.name})
	small.inClass(t, "beside", "gold")
	large.claimStatus(t, "csi", "csi-gold InProgress csi-silver")
}

// podMoves deletes the pod csi on its node, and creates the pod again on another node. The claim of the pod has the
// class silver. The test requests gold while the publisher of the new node is stopped. When the publisher continues,
// the change must complete.
func podMoves(t *testing.T, from, to *pool, w *vm) {
	from.kubectl(t, "delete", "pod", "csi", "--wait", within)
	until(t, "the first node has no claims", func() (bool, string) {
		object := from.object()
		return len(object.Spec.Volumes) == 0 && len(object.Status.Volumes) == 0, fmt.Sprintf("%+v %+v", object.Spec, object.Status.Volumes)
	})

	from.claimStatus(t, "csi", "csi-silver")
	from.kubectl(t, "apply", "-f", csiManifests)
	from.running(t, "csi")
	if got := from.of("csi", "{.spec.nodeName}"); got != to.name {
		t.Fatalf("the pod runs on %s, want %s", got, to.name)
	}

	device := to.loopDevice(t, w, "csi")
	to.limited(t, "csi", device+" "+silverLimits)
	awaitLines(t, func() string { return to.qos(t, "volumes", "csi") }, "csi main /data csi-silver csi-silver "+device)

	w.signalPublisher(t, "STOP")
	to.setAttributes(t, "csi", "csi-gold")
	to.claimStatus(t, "csi", "csi-silver InProgress csi-gold")
	w.signalPublisher(t, "CONT")
	to.claimStatus(t, "csi", "csi-gold")
	to.limited(t, "csi", device+" "+goldLimits)
	to.holds(t)
	to.kubectl(t, "delete", "pod", "csi", "--wait", within)
}
