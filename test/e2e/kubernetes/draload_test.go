// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

const (
	// loadClients is the number of clients of the API. loadPods is the number of pods of each client at a time. All
	// pods together are more than the largest capacity.
	loadClients, loadPods = 8, 6

	// byTemplate is a pod with a claim of the template "load".
	byTemplate = `{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: default}, spec: {terminationGracePeriodSeconds: 1,
  resourceClaims: [{name: c, resourceClaimTemplateName: load}],
  containers: [{name: main, image: %s, imagePullPolicy: Never, resources: {claims: [{name: c}]}}]}}`
	loadTemplate = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: load, namespace: default},
  spec: {spec: {devices: {requests: [{name: class, exactly: {deviceClassName: blockio.gold}}]}}}}`
)

// load is a run of `pods` pods that request gold while gold has a capacity.
type load struct{ capacity, pods int }

// TestDRALoad runs 1000 pods, half of which request gold by their limits, and half by claims, from several clients.
// Gold never has more containers than its capacity, in the ledger of the plugin and in the kernel. At the end, nothing
// is left.
func TestDRALoad(t *testing.T) {
	skipNightly(t)
	n := ready(t)
	p := n.installDRA(t)
	n.apply(t, loadTemplate)
	t.Cleanup(func() { n.kubectl(t, "delete", "resourceclaimtemplate", "load") })

	for _, l := range []load{{3, 100}, {8, 200}, {20, 300}, {40, 400}} {
		n.setGold(t, p.programs, l.capacity)
		n.slots(t, fmt.Sprint("blockio-gold=", l.capacity))
		stop := n.watchGold(t, l.capacity)
		began := time.Now()
		errs := l.run(t, n)
		took := time.Since(began)
		ledger, kernel := stop()
		must(t, errs)
		t.Logf("capacity %d: %d pods in %.0f s; at most %d containers in the ledger and %d in the kernel", l.capacity, l.pods, took.Seconds(), ledger, kernel)
		n.noneLeft(t, l.capacity)
	}
	now, most := memory(t, p.driver)
	t.Logf("the driver has %.1f MiB resident, %.1f MiB at most", now, most)
}

// run runs the pods. It returns when all of them are gone.
func (l load) run(t *testing.T, n *node) error {
	numbers := make(chan int)
	var group sync.WaitGroup
	var mu sync.Mutex
	var errs error
	for range loadClients {
		api := n.client(t)
		for range loadPods {
			group.Go(func() {
				for i := range numbers {
					name := fmt.Sprintf("load-%d-%d", l.capacity, i)
					manifest := pod{name: name, classes: n.asks("gold")}.manifest()
					if i%2 == 1 {
						manifest = fmt.Sprintf(byTemplate, name, workloadImage)
					}
					if err := runOnce(t.Context(), api, strings.TrimSuffix(manifest, "\n---\n")); err != nil {
						mu.Lock()
						errs = errors.Join(errs, fmt.Errorf("pod %s: %w", name, err))
						mu.Unlock()
					}
				}
			})
		}
	}
	for i := range l.pods {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	return errs
}

// runOnce creates a pod, waits until its container runs, deletes the pod, and waits until it is gone.
func runOnce(ctx context.Context, api kubernetes.Interface, manifest string) error {
	pod := &corev1.Pod{}
	if err := yaml.Unmarshal([]byte(manifest), pod); err != nil {
		return err
	}
	pods := api.CoreV1().Pods("default")
	events, err := watchOf(ctx, pods, pod.Name)
	if err != nil {
		return err
	}
	defer events.Stop()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}

	deleted := false
	for event := range events.ResultChan() {
		seen, is := event.Object.(*corev1.Pod)
		switch {
		case event.Type == apiwatch.Deleted && deleted:
			return nil
		case !is || event.Type == apiwatch.Deleted || seen.Status.Phase == corev1.PodFailed && !deleted:
			return fmt.Errorf("unexpected %s: %+v", event.Type, event.Object)
		case !deleted && containerRuns(seen):
			deleted = true
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	return errors.New("the watch has ended")
}

func watchOf(ctx context.Context, pods typedcorev1.PodInterface, name string) (apiwatch.Interface, error) {
	return pods.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
}

func containerRuns(pod *corev1.Pod) bool {
	return len(pod.Status.ContainerStatuses) > 0 && pod.Status.ContainerStatuses[0].State.Running != nil
}

// watchGold checks continuously that gold has at most `capacity` containers, until `stop` is called. `stop` returns the
// largest numbers of containers.
func (n *node) watchGold(t *testing.T, capacity int) (stop func() (ledger, kernel int)) {
	t.Helper()
	machine := invariant.Machine{
		API: qosv1alpha1.NewNodeQOSClient(n.dial(t, nodeAPISocket)), Kernel: n.machine.kernel,
		Live: invariant.LiveByCRI(cri.NewRuntimeServiceClient(n.dial(t, containerdSocket)), n.cgroupIn),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var ledger, kernel int
	go func() {
		defer close(ended)
		again := time.NewTicker(time.Second / 2)
		defer again.Stop()
		for ctx.Err() == nil {
			w, err := machine.Read(ctx)
			if err != nil && ctx.Err() == nil {
				t.Errorf("read the node: %v", err)
				return
			}
			for _, violation := range invariant.Always(w) {
				t.Error(violation)
			}
			inLedger, inKernel := goldIn(w)
			ledger, kernel = max(ledger, inLedger), max(kernel, inKernel)
			select {
			case <-again.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() (int, int) {
		cancel()
		<-ended
		if max(ledger, kernel) > capacity {
			t.Errorf("gold with the capacity %d had %d containers in the ledger, and %d in the kernel", capacity, ledger, kernel)
		}
		return ledger, kernel
	}
}

// goldIn returns the number of containers that have gold in the report of the plugin, and the number of those that have
// it in the kernel.
func goldIn(w invariant.World) (ledger, kernel int) {
	for _, pod := range w.Assignments.GetPods() {
		for _, container := range pod.GetContainers() {
			for _, a := range container.GetQosResources() {
				if a.GetName() == "k8s.io/blockio" && a.GetClass() == "gold" {
					ledger++
				}
			}
		}
	}
	for id, cgroup := range w.Kernel.Cgroups {
		if len(cgroup.Threads) > 0 && strings.Contains(readLimits(w.Kernel, id), rates["gold"]) {
			kernel++
		}
	}
	return ledger, kernel
}

// noneLeft waits until no claim, no prepared claim and no slot of the pods is left.
func (n *node) noneLeft(t *testing.T, capacity int) {
	t.Helper()
	until(t, "no claim is left", func() (bool, string) {
		claims, err := n.try("get", "resourceclaims", "-A", "-o", "name")
		prepared, readErr := os.ReadFile("/var/lib/kubelet/plugins/qos.noderesource.dev/claims.json")
		return err == nil && readErr == nil && claims == "" && string(prepared) == "{}", claims + string(prepared)
	})
	n.slots(t, fmt.Sprint("blockio-gold=", capacity))
	n.holds(t)
}
