// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podeviction"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

var podsOf = schema.GroupResource{Resource: "pods"}

// targetTime is how long a pod must be a target before it is evicted.
const targetTime = 10 * time.Second

// rig is an evictor with a simulated API server and a simulated plugin, in a synctest bubble.
type rig struct {
	t        *testing.T
	plugin   *cachetest.Cache
	client   *fake.Clientset
	registry *prometheus.Registry
	log      bubble.Log

	mu sync.Mutex // guards all below
	// answer returns the API server's answer to the eviction of the named pod. If it returns nil, the pod is evicted.
	answer func(name string) error
	// requests lists the names of the pods whose eviction was requested.
	requests []string
}

// start runs an evictor until the test ends. The plugin is not ready yet.
func start(t *testing.T, pods ...*corev1.Pod) *rig {
	t.Helper()
	return startWith(t, podeviction.Options{NodeName: "worker", Events: true}, pods...)
}

func startWith(t *testing.T, o podeviction.Options, pods ...*corev1.Pod) *rig {
	t.Helper()
	r := &rig{
		t: t, plugin: cachetest.New(nodecache.State{NotReadySince: time.Now()}), client: fake.NewClientset(),
		registry: prometheus.NewRegistry(), answer: allow,
	}

	for _, p := range pods {
		must.Do(t, r.client.Tracker().Add(p))
	}

	r.client.PrependReactor("create", "pods", r.evict)
	o.Writes, o.Registry, o.Log = kubeapi.NewWrites(r.registry), r.registry, slog.New(slog.NewTextHandler(&r.log, nil))
	evictor := podeviction.New(r.plugin, apiserver.Core(r.client), o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- evictor.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})

	return r
}

// evict simulates the API server. If answer allows the eviction and the UID matches the precondition, evict deletes the
// pod at once.
func (r *rig) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateAction)
	if !ok || create.GetSubresource() != "eviction" {
		return false, nil, nil
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	eviction := create.GetObject().(*policyv1.Eviction)
	r.requests = append(r.requests, eviction.Name)
	if err := r.answer(eviction.Name); err != nil {
		return true, nil, err
	}

	pods := corev1.SchemeGroupVersion.WithResource("pods")
	object, err := r.client.Tracker().Get(pods, create.GetNamespace(), eviction.Name)
	if err != nil {
		return true, nil, err
	}

	if want, is := *eviction.DeleteOptions.Preconditions.UID, object.(*corev1.Pod).UID; want != is {
		return true, nil, apierrors.NewConflict(podsOf, eviction.Name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", want, is))
	}

	return true, nil, r.client.Tracker().Delete(pods, create.GetNamespace(), eviction.Name)
}

// setAnswer changes the API server's answer to evictions.
func (r *rig) setAnswer(answer func(name string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// takeRequests returns the evictions requested since the last call.
func (r *rig) takeRequests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests := r.requests
	r.requests = nil
	return requests
}

// wantRetriesOfAnHour checks the number of evictions requested since the last call, an hour ago: one after each delay, which is a random
// part of a minute.
func (r *rig) wantRetriesOfAnHour() {
	r.t.Helper()
	if tries := len(r.takeRequests()); tries < 60 || tries > 300 {
		r.t.Errorf("%d requests in an hour, want about every half minute", tries)
	}
}

func allow(string) error { return nil }

// setTargets makes the plugin report the container "main" of each pod as an eviction target. A pod is given as
// namespace/name.
func (r *rig) setTargets(pods ...string) {
	list := &qosv1alpha1.ListAssignmentsResponse{}
	for _, p := range pods {
		namespace, name, _ := strings.Cut(p, "/")
		list.Evictions = append(list.Evictions, eviction(namespace, name, "main"))
	}
	r.plugin.Set(nodecache.State{Assignments: list, Status: &qosv1alpha1.StatusResponse{}})
}

func eviction(namespace, name, container string) *qosv1alpha1.Eviction {
	return &qosv1alpha1.Eviction{
		PodUid: "uid-" + name, Namespace: namespace, Pod: name, Container: container, Resource: "k8s.io/rdt", Class: "gold",
		Reason: "ClassRemoved", Message: "container " + container + ": class gold was taken out",
	}
}

// pod returns a pod that runs on the node. The path is its namespace/name.
func pod(path string, changes ...func(*corev1.Pod)) *corev1.Pod {
	namespace, name, _ := strings.Cut(path, "/")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: "worker"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// several returns the pods a/p0, a/p1 and so on, and their paths.
func several(count int) (pods []*corev1.Pod, names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf("a/p%d", i))
		pods = append(pods, pod(names[i]))
	}
	return pods, names
}

func (r *rig) wantEvictions(when string, want ...string) {
	r.t.Helper()
	if requests := r.takeRequests(); !slices.Equal(requests, want) {
		r.t.Errorf("%s: requested evictions of %q, want %q", when, requests, want)
	}
}

func (r *rig) wantEvents(when string, want ...string) {
	r.t.Helper()
	list := must.Get(r.client.CoreV1().Events("").List(r.t.Context(), metav1.ListOptions{}))(r.t)

	var got []string
	for i := range list.Items {
		e := &list.Items[i]
		got = append(got, e.Type+" "+e.Reason+" "+string(e.InvolvedObject.UID)+": "+e.Message)
	}

	slices.Sort(got)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: events %q, want %q", when, got, want)
	}
}

// results returns the values of the metric that are not 0. The metric must exist for each result.
func (r *rig) results() map[string]int {
	r.t.Helper()
	families := must.Get(r.registry.Gather())(r.t)

	counts, zeros := map[string]int{}, 0
	for _, family := range families {
		if family.GetName() != "qos_shim_evictions_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if count := int(m.GetCounter().GetValue()); count > 0 {
				counts[m.GetLabel()[0].GetValue()] = count
			} else {
				zeros++
			}
		}
	}

	if got := len(counts) + zeros; got != 7 {
		r.t.Errorf("qos_shim_evictions_total has %d results, want 7", got)
	}

	return counts
}

// budgetError is the answer when a PodDisruptionBudget does not allow the eviction.
func budgetError() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 1 healthy pods and has 1 currently",
	}}
	return err
}

// rightsError is the answer when the shim lacks the permission to evict pods.
func rightsError(name string) error {
	return apierrors.NewForbidden(podsOf, name, fmt.Errorf(
		`User "system:serviceaccount:qos-system:qos-kubelet-shim" cannot create resource "pods/eviction" in API group "" in the namespace "a"`))
}
