// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

const (
	podsPerNode = 110
	// largeRollout is the number of pods that a rollout replaces each second, in a cluster of largeNodes nodes.
	largeRollout, largeNodes = 500, 5000
	// rolloutBegins and rolloutLasts are the durations of the two parts of a rollout that are measured.
	rolloutBegins, rolloutLasts = 75 * time.Second, 150 * time.Second
	// largeShims is the user agent of the shims in this process.
	largeShims = "qos-kubelet-shim/large"
	// maxListMemory is the maximum memory of "kubectl qos" with all nodes, in MiB.
	maxListMemory = 300
)

// large is a cluster of many nodes that exist only in the API. Some of them, the published ones, have a shim and a simulated plugin.
type large struct {
	*node
	nodes, published int
	core             kubernetes.Interface
	objects          dynamic.ResourceInterface
	uids             []types.UID // of the nodes
	publishers       []*publishedNode
	replaced         int // pods, by the rollout
}

// TestLargeCluster measures the load of the shims on the API server in a large cluster, whose nodes have 110 pods each,
// and the time and memory of "kubectl qos" there. QOS_E2E_NODES is the number of nodes, e.g. 5000, and
// QOS_E2E_PUBLISHERS is the number of nodes with a shim. The objects of the other nodes are copies. Rates are per
// published node, and are multiplied for 5,000 nodes.
func TestLargeCluster(t *testing.T) {
	skipNightly(t)
	n := cluster(t)
	n.reportFailure(t)
	l := newLarge(t, n)
	l.createNodes(t)

	watches := l.watches(t)
	l.publish(t)
	for resource, count := range l.watches(t) {
		t.Logf("watches of %s by shims: %.2f per node", resource, float64(count-watches[resource])/float64(l.published))
	}
	l.counted(t, "in quiet", func() {
		end := time.After(nodeqosv1alpha1.HeartbeatInterval) // the shims write heartbeats meanwhile
		l.copyObjects(t)
		l.measuresObjects(t)
		l.measuresWrites(t)
		t.Run("a shim is small", l.shimIsSmall)
		for _, args := range []string{"nodes", "top", "top --by-namespace"} {
			t.Run("kubectl qos "+args, func(t *testing.T) { l.lists(t, strings.Fields(args)...) })
		}
		<-end
	})
	l.counted(t, "when a rollout begins", func() { l.rollout(t, rolloutBegins) })
	l.counted(t, "later in a rollout", func() { l.rollout(t, rolloutLasts) })
}

func newLarge(t *testing.T, n *node) *large {
	t.Helper()
	l := &large{node: n, nodes: numberFrom(t, "QOS_E2E_NODES", 1000), published: numberFrom(t, "QOS_E2E_PUBLISHERS", 20)}
	n.kubectl(t, "apply", "-f", crd)
	n.kubectl(t, "wait", "--for=condition=Established", "crd/nodeqosresources.qos.noderesource.dev", within)
	// Without a kubelet, the controllers would evict the pods, and delete them.
	must(t, n.cluster.controllers.end(syscall.SIGTERM))
	t.Cleanup(func() { n.cluster.controllers.mustStart(t) })

	l.core, l.objects = n.client(t), n.clientOf(t, nodeqosv1alpha1.Plural)
	t.Cleanup(func() { l.remove(t) })
	return l
}

func numberFrom(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	number, err := strconv.Atoi(cmp.Or(os.Getenv(variable), strconv.Itoa(otherwise)))
	must(t, err)
	return number
}

func largeName(i int) string { return fmt.Sprintf("large-%04d", i) }

// each calls a function for each number below `count`, several at a time.
func each(t *testing.T, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(context.WithoutCancel(t.Context())) // also in a cleanup of t
	group.SetLimit(24)
	for i := range count {
		group.Go(func() error { return do(ctx, i) })
	}
	must(t, group.Wait())
}

func (l *large) createNodes(t *testing.T) {
	t.Helper()
	began := time.Now()
	l.kubectl(t, "create", "namespace", "large")
	l.kubectl(t, "-n", "large", "create", "serviceaccount", "default")
	l.uids = make([]types.UID, l.nodes)
	each(t, l.nodes, func(ctx context.Context, i int) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: largeName(i), Labels: map[string]string{"large": ""}}}
		node, err := l.core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err == nil {
			l.uids[i] = node.UID
		}
		return err
	})
	t.Logf("%d nodes exist after %.0f s", l.nodes, time.Since(began).Seconds())
}

// copyOf returns a copy of an object for another node, without its metadata.
func (l *large) copyOf(object *unstructured.Unstructured, node int) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "status": object.Object["status"],
	}}
	made.SetName(largeName(node))
	made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: largeName(node), UID: l.uids[node]}})
	return made
}

// copyObjects gives the nodes without a shim a copy of the object of the first node. The last node gets none. Two updates cost the API
// server less than two applies.
func (l *large) copyObjects(t *testing.T) {
	t.Helper()
	first, err := l.objects.Get(t.Context(), largeName(0), metav1.GetOptions{})
	must(t, err)
	began := time.Now()
	each(t, l.nodes-l.published-1, func(ctx context.Context, i int) error {
		object := l.copyOf(first, l.published+i)
		created, err := l.objects.Create(ctx, object, metav1.CreateOptions{FieldManager: nodeqosv1alpha1.FieldManager})
		if err != nil {
			return err
		}
		object.SetResourceVersion(created.GetResourceVersion())
		_, err = l.objects.UpdateStatus(ctx, object, metav1.UpdateOptions{FieldManager: nodeqosv1alpha1.FieldManager})
		return err
	})
	t.Logf("the other objects exist after %.0f s", time.Since(began).Seconds())
}

// measuresWrites creates the object of the last node as a shim does, and reports the cost of further writes for the
// control plane.
func (l *large) measuresWrites(t *testing.T) {
	t.Helper()
	first, err := l.objects.Get(t.Context(), largeName(0), metav1.GetOptions{})
	must(t, err)
	object := l.copyOf(first, l.nodes-1)
	options := metav1.ApplyOptions{FieldManager: nodeqosv1alpha1.FieldManager, Force: true}
	_, err = l.objects.Apply(t.Context(), object.GetName(), object, options)
	must(t, err)

	const writes = 200
	server, etcd := cpuTime(t, l.cluster.server), cpuTime(t, l.cluster.etcd)
	for i := range writes {
		heartbeat := time.Unix(int64(i), 0).UTC().Format(time.RFC3339)
		must(t, unstructured.SetNestedField(object.Object, heartbeat, "status", "lastHeartbeatTime"))
		_, err := l.objects.ApplyStatus(t.Context(), object.GetName(), object, options)
		must(t, err)
	}
	server, etcd = cpuTime(t, l.cluster.server)-server, cpuTime(t, l.cluster.etcd)-etcd
	t.Logf("a write of an object takes %s of CPU of the API server, and %s of etcd", server/writes, etcd/writes)
}

// measuresObjects reports the size of an object, and the memory of the control plane.
func (l *large) measuresObjects(t *testing.T) {
	t.Helper()
	object, err := l.objects.Get(t.Context(), largeName(0), metav1.GetOptions{})
	must(t, err)
	stored, err := object.MarshalJSON()
	must(t, err)
	managed, err := json.Marshal(object.GetManagedFields())
	must(t, err)
	server, _ := memory(t, l.cluster.server)
	t.Logf("an object has %d bytes in etcd, %d of them managed fields; with the objects of %d nodes, etcd has %.0f MiB, and the API server %.0f MiB of memory",
		len(stored), len(managed), l.nodes, l.metric(t, "apiserver_storage_size_bytes")/(1<<20), server)
}

// metric returns the sum of a metric of the API server, of the lines that have all the given texts.
func (l *large) metric(t *testing.T, name string, with ...string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(l.kubectl(t, "get", "--raw", "/metrics")) {
		labels, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		lacks := func(text string) bool { return !strings.Contains(labels, text) }
		if !strings.HasPrefix(line, name+"{") || slices.ContainsFunc(with, lacks) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		must(t, err)
		sum += number
	}
	return sum
}

func (l *large) watches(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, resource := range []string{"pods", "nodeqosresources", "nodes"} {
		counts[resource] = int(l.metric(t, "apiserver_longrunning_requests", `resource="`+resource+`"`, `verb="WATCH"`))
	}
	return counts
}

// counted reports the writes of the published nodes while a function runs. It fails if a node writes more than a kubelet, which renews
// its Lease every 10 s.
func (l *large) counted(t *testing.T, when string, run func()) {
	t.Helper()
	before, began := len(l.writesOf(t, largeShims)), time.Now()
	run()
	took := time.Since(began).Seconds()
	for write, count := range countEach(l.writesOf(t, largeShims)[before:]) {
		rate := float64(count) / took / float64(l.published)
		t.Logf("%s, %q: %d in %.0f s; %.2f a minute and node, %.1f a second with %d nodes", when, write, count, took, 60*rate, rate*largeNodes, largeNodes)
		if 60*rate > 6.6 { // six, and 10% because the time is not a multiple of the intervals
			t.Errorf("%s, %q: %.2f writes a minute and node, want at most 6.6", when, write, 60*rate)
		}
	}
}

// lists reports the time and memory that a command needs for all nodes. The command must read the nodes in pages.
func (l *large) lists(t *testing.T, args ...string) {
	t.Helper()
	requests := func() float64 {
		return l.metric(t, "apiserver_request_total", `resource="nodeqosresources"`, `verb="LIST"`)
	}
	before := requests()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), l.program("kubectl-qos"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+l.cluster.kubeconfig("admin"))
	command.Stdout, command.Stderr = &out, &errs
	began := time.Now()
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}

	took := time.Since(began)
	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("no resource usage")
	}
	peak, made := usage.Maxrss/1024, int(requests()-before)
	t.Logf("%d nodes in %.1f s, %.1f s of CPU; %d MiB at most; %d requests, %d lines", l.nodes, took.Seconds(),
		(command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds(), peak, made, bytes.Count(out.Bytes(), []byte("\n")))
	const perPage = 500 // of kubectl qos
	if want := (l.nodes + perPage - 1) / perPage; made < want {
		t.Errorf("%d requests, want at least %d, one for each page", made, want)
	}
	if peak > maxListMemory {
		t.Errorf("the command has used %d MiB, want at most %d", peak, maxListMemory)
	}
}

func (l *large) remove(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	must(t, l.core.CoreV1().Pods("large").DeleteCollection(ctx, now, metav1.ListOptions{}))
	must(t, l.core.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{LabelSelector: "large"}))
	l.kubectl(t, "delete", "-f", crd)
	l.kubectl(t, "delete", "namespace", "large", "--wait=false")
}
