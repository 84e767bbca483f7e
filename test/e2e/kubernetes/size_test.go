// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	kubelettest "github.com/qos-nri/qos-nri-plugin/test/kubelet"
)

const (
	manyPods  = 250
	otherNode = "node-2"
	maxMemory = 40 // MiB
)

// TestTheShimIsSmall measures the memory of both processes of the shim on a node with many pods, and counts their writes to the API. The
// node and the pods exist only in the API. The test simulates the kubelet and the plugin.
func TestTheShimIsSmall(t *testing.T) {
	n := ready(t)
	n.kubectl(t, "apply", "-f", crd)
	n.apply(t, otherPods())
	t.Cleanup(func() {
		n.kubectl(t, "-n", "many", "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
		n.kubectl(t, "delete", "node", otherNode)
	})

	plugin := apitest.NewNode()
	must(t, plugin.Load(t.Context(), apitest.Files))
	for name, uid := range n.uids(t) {
		must(t, plugin.RunPodAs(t.Context(), uid, "many", name, "", "main", "side"))
	}

	served, err := apitest.Serve(context.WithoutCancel(t.Context()), plugin, "/run")
	must(t, err)
	t.Cleanup(func() { must(t, served.Stop()) })
	kubelet := kubelettest.New("/run/kubelet-2")
	must(t, kubelet.Start())
	t.Cleanup(kubelet.Kill)

	before := len(n.writes(t))
	flags := []string{n.program("qos-kubelet-shim"), "--api-socket", served.Socket, "--metrics-address="}
	shim := n.process("shim-2", append(slices.Clone(flags), "--publish=device-plugin", "--kubelet-dir", kubelet.Root())...)
	publisher := n.process("publisher-2", append(flags, "--publish=node-object,pod-conditions,events,evictions",
		"--node-name", otherNode, "--kubeconfig", n.cluster.kubeconfig("admin"))...)
	start := time.Now()
	for _, process := range []*process{shim, publisher} {
		process.mustStart(t)
		t.Cleanup(func() { must(t, process.end(syscall.SIGTERM)) })
	}

	until(t, "all pods have their condition", func() (bool, string) {
		output, _ := n.try("-n", "many", "get", "pods", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="qos.noderesource.dev/Assigned")].status}`)
		return len(strings.Fields(output)) == manyPods, fmt.Sprint(len(strings.Fields(output)))
	})

	took := time.Since(start)
	quiet := n.quiet(t, 7*time.Second)
	const idle = 10 * time.Second
	busy := map[*process]time.Duration{shim: cpuTime(t, shim), publisher: cpuTime(t, publisher)}
	<-time.After(idle)
	t.Logf("%d pods with 2 containers each: conditions after %.0f s, %d writes in all; then %d in %s",
		manyPods, took.Seconds(), quiet-before, len(n.writes(t))-quiet, idle)
	for p, cpu := range busy {
		resident, most := memory(t, p)
		t.Logf("%s: %s of CPU, then %s in %s; %.1f MiB resident, %.1f MiB at most", p.name, cpu, cpuTime(t, p)-cpu, idle, resident, most)
		if most > maxMemory {
			t.Errorf("%s had %.1f MiB of resident memory, want at most %d", p.name, most, maxMemory)
		}
	}

	if writes := quiet - before; writes > manyPods+10 {
		t.Errorf("%d writes for %d pods; want one for each pod, and a few for the node", writes, manyPods)
	}
}

// otherPods returns the manifests of a namespace, of a node without a kubelet, and of the pods on this node.
func otherPods() string {
	var manifests strings.Builder
	manifests.WriteString("apiVersion: v1\nkind: Namespace\nmetadata: {name: many}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: " + otherNode + "}\n---\n")
	for i := range manyPods {
		fmt.Fprintf(&manifests, `apiVersion: v1
kind: Pod
metadata: {name: pod-%d, namespace: many, labels: {app: many}}
spec:
  nodeName: %s
  automountServiceAccountToken: false
  containers:
  - {name: main, image: %s}
  - {name: side, image: %s}
---
`, i, otherNode, workloadImage, workloadImage)
	}

	return manifests.String()
}

// uids returns the UIDs of the pods by name.
func (n *node) uids(t *testing.T) map[string]string {
	t.Helper()
	var list corev1.PodList
	must(t, n.get(&list, "-n", "many", "pods"))
	uids := map[string]string{}
	for i := range list.Items {
		uids[list.Items[i].Name] = string(list.Items[i].UID)
	}
	return uids
}

// cpuTime returns the CPU time that a process has used.
func cpuTime(t *testing.T, p *process) time.Duration {
	t.Helper()
	process, err := procfs.NewProc(p.command.Process.Pid)
	must(t, err)
	stat, err := process.Stat()
	must(t, err)
	return time.Duration(stat.CPUTime() * float64(time.Second))
}

// memory returns the resident memory of a process, and its maximum, in MiB.
func memory(t *testing.T, p *process) (now, most float64) {
	t.Helper()
	status := statusOf(t, p)
	return float64(status.VmRSS) / mib, float64(status.VmHWM) / mib
}

// mib is the number of bytes of a MiB.
const mib = 1 << 20

func statusOf(t *testing.T, p *process) procfs.ProcStatus {
	t.Helper()
	process, err := procfs.NewProc(p.command.Process.Pid)
	must(t, err)
	status, err := process.NewStatus()
	must(t, err)
	return status
}
