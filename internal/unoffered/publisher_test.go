// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package unoffered_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/unoffered"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// cluster stands in for the API server. It is safe for concurrent use.
type cluster struct {
	kubeapi.Core
	dynamic.Interface
	dynamic.NamespaceableResourceInterface

	mu      sync.Mutex // guards all below
	nodes   []nodeqosv1alpha1.NodeQOSResources
	lists   int
	limits  []int64 // of the lists' responses
	watches []*watch.RaceFreeFakeWatcher
	options metav1.ListOptions // of the last watch
	events  map[string]*corev1.Event
	writes  int

	log bubble.Log // of the publishers
}

func (c *cluster) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c *cluster) List(_ context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, from := &unstructured.UnstructuredList{}, 0
	if o.Continue != "" {
		from, _ = strconv.Atoi(o.Continue)
	} else {
		c.lists++
	}
	c.limits = append(c.limits, o.Limit)
	to := min(from+int(o.Limit), len(c.nodes))
	for i := range c.nodes[from:to] {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.nodes[from+i])
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: object})
	}
	if to < len(c.nodes) {
		list.SetContinue(strconv.Itoa(to))
	}
	return list, nil
}

type podClient struct {
	kubeapi.Pods
	*cluster
}

func (c *cluster) Pods(string) kubeapi.Pods { return podClient{cluster: c} }

func (p podClient) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := watch.NewRaceFreeFake()
	c := p.cluster
	c.watches, c.options = append(c.watches, w), o
	return w, nil
}

func (p podClient) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return nil, apierrors.NewInternalError(fmt.Errorf("a list of all waiting pods can exceed the memory of the publisher"))
}

func (p podClient) Patch(
	context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string,
) (*corev1.Pod, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{}, "", nil)
}

type eventClient struct {
	kubeapi.Events
	*cluster
}

func (c *cluster) Events(string) kubeapi.Events { return eventClient{cluster: c} }

func (e eventClient) Create(_ context.Context, event *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	if event.Namespace == "slow" {
		<-time.After(time.Minute)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cluster
	c.writes++
	switch event.Namespace {
	case "busy":
		return nil, apierrors.NewTooManyRequests("limit reached on type Namespace for key busy", 1)
	case "full":
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, event.Name, errors.New("exceeded quota"))
	}
	if _, exists := e.events[event.Name]; exists {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name)
	}
	e.events[event.Name] = event
	return event, nil
}

func (e eventClient) Patch(
	context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string,
) (*corev1.Event, error) {
	return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", nil)
}

// messages returns the events of a pod.
func (c *cluster) messages(pod string) (messages []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, event := range c.events {
		if o := event.InvolvedObject; o.Name == pod {
			messages = append(messages, event.Type+" "+event.Reason+" "+o.FieldPath+": "+event.Message)
		}
	}
	slices.Sort(messages)
	return messages
}

// node returns what a node reports that offers classes of k8s.io/rdt, and the class fast of vendor.example/xyz.
func node(name string, heartbeat time.Time, names ...string) nodeqosv1alpha1.NodeQOSResources {
	object := nodeqosv1alpha1.NodeQOSResources{ObjectMeta: metav1.ObjectMeta{Name: name}}
	object.Status.LastHeartbeatTime = new(metav1.NewTime(heartbeat))
	rdt := nodeqosv1alpha1.QOSResourceInfo{Name: "k8s.io/rdt"}
	for _, class := range names {
		class, draining := strings.CutSuffix(class, " draining")
		rdt.Classes = append(rdt.Classes, nodeqosv1alpha1.QOSResourceClassInfo{
			Name: class, ExtendedResource: "qos.noderesource.dev/rdt." + class, Draining: draining,
		})
	}
	other := nodeqosv1alpha1.QOSResourceInfo{Name: "vendor.example/xyz", Classes: []nodeqosv1alpha1.QOSResourceClassInfo{
		{Name: "fast", ExtendedResource: "vendor.example/xyz.fast"},
	}}
	object.Status.QOSResources.ContainerQOSResources = []nodeqosv1alpha1.QOSResourceInfo{rdt}
	object.Status.QOSResources.PodQOSResources = []nodeqosv1alpha1.QOSResourceInfo{other}
	return object
}

// waiting returns a pod that no node fits.
func waiting(namespace, name string, limits ...corev1.ResourceName) *corev1.Pod {
	list := corev1.ResourceList{}
	for _, limit := range limits {
		list[limit] = resource.MustParse("1")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: list}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}},
	}
}

// runOne calls a test in a bubble with one node, n1, whose publisher runs.
func runOne(t *testing.T, test func(t *testing.T, c *cluster)) {
	run(t, []string{"n1"}, oneNode, test)
}

// run calls a test in a bubble in which the publishers of these nodes run.
func run(t *testing.T, publishers []string, nodes func() []nodeqosv1alpha1.NodeQOSResources, test func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{nodes: nodes(), events: map[string]*corev1.Event{}}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, name := range publishers {
			p := unoffered.New(c, c, unoffered.Options{
				NodeName: name, Writes: kubeapi.NewWrites(prometheus.NewRegistry()), Log: slog.New(slog.NewTextHandler(&c.log, nil)),
			})
			running.Go(func() { _ = p.Run(ctx) })
		}
		bubble.Pass(time.Minute)
		test(t, c)
		cancel()
		running.Wait()
	})
}

func TestAPodThatWaitsForAClassThatNoNodeOffersGetsAnEvent(t *testing.T) {
	nodes := func() []nodeqosv1alpha1.NodeQOSResources {
		return []nodeqosv1alpha1.NodeQOSResources{
			node("n1", time.Now(), "gold", "old draining"), node("n2", time.Now(), "silver"), node("n3", time.Now(), "bronze"),
		}
	}
	// n1 does not offer class old any more, because the class drains.
	const offered = "nodes offer qos.noderesource.dev/rdt.bronze, qos.noderesource.dev/rdt.gold, qos.noderesource.dev/rdt.silver, vendor.example/xyz.fast"
	const about = "Warning QOSClassNotOffered : no node offers "
	run(t, []string{"n1"}, nodes, func(t *testing.T, c *cluster) {
		stream := c.watches[0]
		scheduled := waiting("a", "scheduled", "qos.noderesource.dev/rdt.glod")
		first := waiting("a", "init", "qos.noderesource.dev/blockio.fast")
		first.Spec.InitContainers, first.Spec.Containers = first.Spec.Containers, nil
		for _, pod := range []*corev1.Pod{
			waiting("a", "misspelled", "qos.noderesource.dev/rdt.glod", "cpu"), waiting("a", "full", "qos.noderesource.dev/rdt.bronze"),
			waiting("a", "removed", "qos.noderesource.dev/rdt.old"), waiting("a", "vendor", "vendor.example/xyz.slow"),
			waiting("a", "others", "nvidia.com/mig-1g.5gb", "memory"), scheduled, first,
		} {
			stream.Add(pod)
		}
		stream.Delete(scheduled)
		bubble.Pass(time.Minute)

		for pod, want := range map[string][]string{
			"misspelled": {about + "qos.noderesource.dev/rdt.glod (did you mean qos.noderesource.dev/rdt.gold?), so the pod waits; " + offered},
			"removed":    {about + "qos.noderesource.dev/rdt.old (did you mean qos.noderesource.dev/rdt.gold?), so the pod waits; " + offered},
			"vendor":     {about + "vendor.example/xyz.slow, so the pod waits; " + offered},
			"init":       {about + "qos.noderesource.dev/blockio.fast, so the pod waits; " + offered},
			"full":       nil, "others": nil, "scheduled": nil,
		} {
			if diff := cmp.Diff(want, c.messages(pod)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", pod, diff)
			}
		}
	})
}

func TestOnlyPodsWithoutANodeAreWatched(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		if len(c.watches) != 1 || c.options.FieldSelector != "spec.nodeName=" || c.options.ResourceVersion != "0" {
			t.Errorf("%d watches, of %q from version %q; want one, of spec.nodeName= from 0", len(c.watches), c.options.FieldSelector, c.options.ResourceVersion)
		}
	})
}

func TestAPodGetsItsEventAfterTheSchedulerHasTried(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		untried := waiting("a", "web", misspelled)
		untried.Status.Conditions = nil
		c.watches[0].Add(untried)
		bubble.Pass(2 * time.Minute)
		if got := c.messages("web"); len(got) != 0 {
			t.Errorf("before the scheduler has tried: %q, want no event", got)
		}
		c.watches[0].Modify(waiting("a", "web", misspelled))
		bubble.Pass(2 * time.Minute)
		if got := c.messages("web"); len(got) != 1 {
			t.Errorf("after the scheduler has tried: %q, want one event", got)
		}
	})
}

// TestTheNextWatchMakesNoSecondEvent: each watch begins with all waiting pods. The second write finds that the event exists, which is
// no error.
func TestTheNextWatchMakesNoSecondEvent(t *testing.T) {
	runOne(t, func(t *testing.T, c *cluster) {
		c.watches[0].Add(waiting("a", "web", misspelled))
		bubble.Pass(2 * time.Minute)
		c.watches[0].Stop()
		bubble.Pass(time.Minute)
		c.watches[1].Add(waiting("a", "web", misspelled))
		bubble.Pass(2 * time.Minute)
		if got := c.messages("web"); len(got) != 1 || c.writes != 2 || c.log.String() != "" {
			t.Errorf("%d writes, events %q and log %q; want 2 writes, one event, and an empty log", c.writes, got, c.log.String())
		}
	})
}

// TestOnlyTheFirstNodeThatReportsWatchesWaitingPods: n1 has stopped reporting, so the publisher of n2 watches. After the object of n2 is
// deleted, that of n3 watches.
func TestOnlyTheFirstNodeThatReportsWatchesWaitingPods(t *testing.T) {
	nodes := func() []nodeqosv1alpha1.NodeQOSResources {
		return []nodeqosv1alpha1.NodeQOSResources{
			node("n1", time.Now().Add(-time.Hour), "gold"), node("n2", time.Now().Add(time.Hour), "gold"), node("n3", time.Now().Add(time.Hour), "gold"),
		}
	}
	run(t, []string{"n1", "n2", "n3"}, nodes, func(t *testing.T, c *cluster) {
		if len(c.watches) != 1 {
			t.Errorf("%d publishers watch, want one", len(c.watches))
		}
		c.mu.Lock()
		c.lists, c.nodes = 0, c.nodes[2:] // the objects of n1 and n2 are deleted
		c.mu.Unlock()
		c.watches[0].Stop()
		bubble.Pass(11 * time.Minute) // a publisher that does not watch lists the nodes every 5 to 10 minutes
		// each publisher has listed the nodes at most twice, and that of n2 once more just after its watch
		if len(c.watches) != 2 || c.lists > 7 {
			t.Errorf("%d watches began, want 2; %d lists of the nodes, want at most 7", len(c.watches), c.lists)
		}
	})
}
