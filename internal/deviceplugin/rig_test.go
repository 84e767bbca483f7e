// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	kubelettest "github.com/qos-nri/qos-nri-plugin/test/kubelet"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

const (
	bronze = "qos.noderesource.dev/rdt.bronze"
	fast   = "vendor.example/net.fast"

	patience = 30 * time.Second
)

// cache is a Cache whose state the tests set.
type cache struct {
	*cachetest.Cache
	seenAway atomic.Bool // whether the state that was read last is that of a plugin that is away
}

func newCache() *cache {
	return &cache{Cache: cachetest.New(nodecache.State{NotReadySince: time.Now(), Problem: "it has not answered yet"})}
}

func (c *cache) Get() (state nodecache.State, changed <-chan struct{}) {
	state, changed = c.Cache.Get()
	c.seenAway.Store(!state.Ready())
	return state, changed
}

// ready sets the state of a plugin with classes and assignments.
func (c *cache) ready(resources *qosv1alpha1.ResourcesInfo, pods ...*qosv1alpha1.PodAssignments) {
	status := &qosv1alpha1.StatusResponse{Resources: resources}
	c.Set(nodecache.State{Status: status, Latest: status, Assignments: assignments(pods...)})
}

func (c *cache) away() {
	state, _ := c.Cache.Get()
	state.NotReadySince, state.Problem, state.Latest = time.Now(), "it has gone", nil
	c.Set(state)
}

// offered returns two resources. The resource k8s.io/rdt has the classes gold and bronze, and a class without an
// extended resource. Bronze has no capacity, so 1000 devices are listed for it. The resource vendor.example/net has pod scope.
func offered(goldCapacity uint64) *qosv1alpha1.ResourcesInfo {
	return &qosv1alpha1.ResourcesInfo{
		ContainerQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: "k8s.io/rdt", Classes: []*qosv1alpha1.QOSResourceClassInfo{
			{Name: "gold", Capacity: goldCapacity, ExtendedResource: gold},
			{Name: "bronze", ExtendedResource: bronze},
			{Name: "nameless", Capacity: 3},
		}}},
		PodQosResources: []*qosv1alpha1.QOSResourceInfo{{Name: "vendor.example/net", Classes: []*qosv1alpha1.QOSResourceClassInfo{
			{Name: "fast", Capacity: 4, ExtendedResource: fast},
		}}},
	}
}

// journal is a log in memory.
type journal struct {
	mu   sync.Mutex // guards all below
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// rig is a publisher and a test kubelet.
type rig struct {
	*testing.T

	plugin    *cache
	kubelet   *kubelettest.Kubelet
	publisher *Publisher
	registry  *prometheus.Registry
	log       *journal

	stop func()
}

// newRig makes a publisher and a kubelet. Neither runs.
func newRig(t *testing.T) *rig {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "kubelet"))(t)

	r := &rig{T: t, plugin: newCache(), kubelet: kubelettest.New(dir), log: &journal{}, stop: func() {}}
	r.replacePublisher()
	t.Cleanup(func() {
		r.stop()
		r.kubelet.Kill()
		if err := r.kubelet.Err(); err != nil {
			t.Errorf("kubelet would have panicked: %v", err)
		}
		_ = os.RemoveAll(dir)
		awaitNoGoroutines(t)
	})

	return r
}

// replacePublisher makes another publisher for the same kubelet and plugin.
func (r *rig) replacePublisher() {
	r.registry = prometheus.NewRegistry()
	r.publisher = New(r.plugin, Options{
		KubeletDir: r.kubelet.Root(), Grace: forever, Registry: r.registry, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	})
	r.publisher.timing = timing{
		now: time.Now, debounce: time.Millisecond, deviceTTL: 50 * time.Millisecond, startup: 50 * time.Millisecond,
		poll: 20 * time.Millisecond, pollMax: 50 * time.Millisecond,
	}
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.publisher.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				r.Errorf("the publisher ended with %v", err)
			}
		case <-time.After(patience):
			r.Error("the publisher did not end")
		}
	})
}

func (r *rig) startKubelet() {
	r.Helper()
	must.Do(r, r.kubelet.Start())
}

// start starts kubelet and publisher, offers classes, and waits until kubelet reports them.
func (r *rig) start(goldCapacity uint64, pods ...*qosv1alpha1.PodAssignments) {
	r.Helper()
	r.startKubelet()
	r.plugin.ready(offered(goldCapacity), pods...)
	r.run()
	r.awaitGold(int(goldCapacity), int(goldCapacity))
	r.await(bronze, 1000, 1000)
	r.await(fast, 4, 4)
}

func (r *rig) awaitGold(capacity, allocatable int) {
	r.Helper()
	r.await(gold, capacity, allocatable)
}

// await waits until kubelet watches the device plugin of a resource and reports this capacity and this number of
// allocatable devices.
func (r *rig) await(resource string, capacity, allocatable int) {
	r.Helper()
	r.until(resource+" has the numbers", func() bool {
		got := r.kubelet.Resource(resource)
		return got.Followed && got.Capacity == capacity && got.Allocatable == allocatable
	})
}

// until waits until a condition about the test kubelet is met. The test kubelet signals its changes.
func (r *rig) until(what string, met func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.kubelet.Await(ctx, met); err != nil {
		r.Fatalf("%s: %v; gold %+v, healthy: %v; log:\n%s", what, err, r.kubelet.Resource(gold), r.publisher.Healthy(), r.log)
	}
}

// soon polls a condition until it is met. It is for conditions whose changes the test kubelet does not signal.
func (r *rig) soon(what string, met func() bool) {
	r.Helper()
	deadline := time.After(patience)
	for !met() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			r.Fatalf("%s: timeout; log:\n%s", what, r.log)
		}
	}
}

func pod(name string, limits map[string]int) kubelettest.Pod {
	return kubelettest.Pod{Namespace: "default", Name: name, Containers: []kubelettest.Container{{Name: "app", Limits: limits}}}
}

func (r *rig) admit(p kubelettest.Pod) {
	r.Helper()
	must.Do(r, r.kubelet.Admit(context.Background(), p))
}

// readmit makes the kubelet admit the pods again, as a restarted kubelet does with pods that have no running containers.
func (r *rig) readmit(names ...string) {
	r.Helper()
	for _, name := range names {
		if err := r.kubelet.Readmit("default", name); err != nil {
			r.Fatalf("%v; gold %+v; log:\n%s", err, r.kubelet.Resource(gold), r.log)
		}
	}
}

// traffic counts, for each class but gold, the registrations (index 0) and the messages (index 1).
type traffic struct{ Bronze, Fast [2]int }

func (r *rig) traffic() traffic {
	of := func(resource string) [2]int {
		state := r.kubelet.Resource(resource)
		return [2]int{state.Registrations, state.Messages}
	}
	return traffic{of(bronze), of(fast)}
}

// awaitNoGoroutines waits until no goroutine of this package, gRPC or fsnotify is left.
func awaitNoGoroutines(t *testing.T) {
	t.Helper()
	deadline := time.After(patience)
	for {
		left := goroutines()
		if len(left) == 0 {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			t.Fatalf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
		}
	}
}

func goroutines() []string {
	buffer := make([]byte, 1<<20)
	var list []string
	for _, stack := range strings.Split(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		ours := strings.Contains(stack, "deviceplugin.") || strings.Contains(stack, "grpc") || strings.Contains(stack, "fsnotify")
		if ours && !strings.Contains(stack, "testing.") {
			list = append(list, stack)
		}
	}
	return list
}
