// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeletshim"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
)

// publishedNode is a node with a simulated plugin, and its node API on a socket.
type publishedNode struct {
	*apitest.Node
	name   string
	served *apitest.Served
	pods   []string // names, the oldest first
}

// publish runs the plugins and shims, and waits until all pods have their conditions.
func (l *large) publish(t *testing.T) {
	t.Helper()
	began := time.Now()
	l.publishers = make([]*publishedNode, l.published)
	each(t, l.published, func(ctx context.Context, i int) (err error) {
		l.publishers[i], err = l.newPublished(ctx, t, largeName(i))
		return err
	})
	for _, p := range l.publishers {
		t.Cleanup(func() { must(t, p.served.Stop()) })
	}
	t.Logf("%d pods run after %.0f s", l.published*podsPerNode, time.Since(began).Seconds())

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, l.published)
	for _, p := range l.publishers {
		options := kubeletshim.DefaultOptions()
		options.APISocket, options.NodeName, options.Kubeconfig = p.served.Socket, p.name, l.cluster.kubeconfig("admin")
		options.MetricsAddress, options.Version = "", "large"
		options.Publish = []string{kubeletshim.NodeObject, kubeletshim.PodConditions, kubeletshim.Events, kubeletshim.Evictions}
		go func() { ended <- kubeletshim.New(options, slog.New(slog.DiscardHandler)).Run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		var errs error
		for range l.published {
			errs = errors.Join(errs, <-ended)
		}
		must(t, errs)
	})

	began = time.Now()
	until(t, "all pods have their conditions, and all nodes their objects", func() (bool, string) {
		counts := countEach(l.writesOf(t, largeShims))
		return counts["patch pods/status"] >= l.published*podsPerNode && counts["patch nodeqosresources/status"] >= l.published, fmt.Sprint(counts)
	})
	t.Logf("conditions and objects after %.0f s: %d writes", time.Since(began).Seconds(), len(l.writesOf(t, largeShims)))
	<-time.After(35 * time.Second) // a publisher writes changed holders at most every 30 s
}

func (l *large) newPublished(ctx context.Context, t *testing.T, name string) (*publishedNode, error) {
	dir := filepath.Join("/run", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	p := &publishedNode{Node: apitest.NewNode(), name: name}
	if err := p.Load(ctx, strings.ReplaceAll(apitest.Files, "capacity: 4", "capacity: 400")); err != nil {
		return nil, err
	}
	for range podsPerNode {
		if err := l.start(ctx, p); err != nil {
			return nil, err
		}
	}
	var err error
	p.served, err = apitest.Serve(context.WithoutCancel(t.Context()), p, dir)
	return p, err
}

// start starts a pod on a node: in the API as the scheduler and the kubelet do, and in the plugin.
func (l *large) start(ctx context.Context, p *publishedNode) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: p.name + "-frontend-7d9f8c6b5-"}}
	pod.Spec = corev1.PodSpec{
		NodeName: p.name, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "main", Image: "none"}},
	}
	pod, err := created(ctx, l.core.CoreV1().Pods("large"), pod, setRunning)
	if err != nil {
		return err
	}
	p.pods = append(p.pods, pod.Name+" "+string(pod.UID))
	return p.RunPodAs(ctx, string(pod.UID), "large", pod.Name, "blockio=high-prio", "main")
}

// replace ends the oldest pod of a node, and starts another one.
func (l *large) replace(ctx context.Context, p *publishedNode) error {
	name, uid, _ := strings.Cut(p.pods[0], " ")
	p.pods = p.pods[1:]
	p.Stop("id-" + uid + "-main")
	p.StopPod("sandbox-" + uid)
	if err := l.core.CoreV1().Pods("large").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return err
	}
	return l.start(ctx, p)
}

// rollout replaces pods for some time. Each node replaces as many pods a second as a node in a cluster of largeNodes nodes.
func (l *large) rollout(t *testing.T, some time.Duration) {
	t.Helper()
	tick := time.NewTicker(time.Second * largeNodes / time.Duration(largeRollout*l.published))
	defer tick.Stop()
	for end := time.Now().Add(some); time.Now().Before(end); l.replaced++ {
		<-tick.C
		must(t, l.replace(t.Context(), l.publishers[l.replaced%l.published]))
	}
}

// shimIsSmall measures the memory of a process of the shim.
func (l *large) shimIsSmall(t *testing.T) {
	p, err := l.newPublished(t.Context(), t, "large-process")
	must(t, err)
	t.Cleanup(func() { must(t, p.served.Stop()) })
	_, err = l.core.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { l.kubectl(t, "delete", "node", p.name) })

	const program = "qos-kubelet-shim/v"
	before := len(l.writesOf(t, program))
	shim := l.startProcess(t, "publisher-large", l.program("qos-kubelet-shim"), "--api-socket", p.served.Socket, "--metrics-address=",
		"--publish=node-object,pod-conditions,events,evictions", "--node-name", p.name, "--kubeconfig", l.cluster.kubeconfig("admin"))
	until(t, "all pods have their conditions", func() (bool, string) {
		writes := len(l.writesOf(t, program)) - before
		return writes > podsPerNode, strconv.Itoa(writes)
	})
	resident, most := memory(t, shim)
	t.Logf("a shim with %d pods: %.1f MiB resident, %.1f MiB at most, %s of CPU", podsPerNode, resident, most, cpuTime(t, shim))
	if most > maxMemory {
		t.Errorf("the shim has used %.1f MiB, want at most %d", most, maxMemory)
	}
}
