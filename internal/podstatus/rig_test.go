// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// plugin simulates the plugin. Tests set its state.
type plugin struct{ *cachetest.Cache }

// set makes the plugin report refusals, and a class of k8s.io/rdt for the container "main" of each pod. A class is
// given as "pod=class", e.g. "web=gold".
func (p *plugin) set(refusals []*qosv1alpha1.Refusal, classes ...string) {
	list := &qosv1alpha1.ListAssignmentsResponse{Refusals: refusals}
	for _, c := range classes {
		name, class, _ := strings.Cut(c, "=")
		source := qosv1alpha1.Source_SOURCE_CONTAINER
		if class == "" {
			source = qosv1alpha1.Source_SOURCE_UNSPECIFIED
		}
		list.Pods = append(list.Pods, &qosv1alpha1.PodAssignments{
			Uid: "uid-" + name, Namespace: "default", Name: name,
			Containers: []*qosv1alpha1.ContainerAssignments{{Name: "main", Id: "id-" + name + "-main", QosResources: []*qosv1alpha1.Assignment{
				{Name: "k8s.io/rdt", Class: class, Source: source},
			}}},
		})
	}

	offered := []*qosv1alpha1.QOSResourceInfo{{Name: "k8s.io/rdt", Mutable: true, Classes: []*qosv1alpha1.QOSResourceClassInfo{{Name: "gold"}, {Name: "silver"}}}}
	p.Set(nodecache.State{Assignments: list, Status: &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{ContainerQosResources: offered}}})
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{"container.qos.noderesource.dev/main": "rdt=gold", "other": "kept out"},
		},
		Spec: corev1.PodSpec{NodeName: "worker", Containers: []corev1.Container{{Name: "main", Image: "example"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "main", ContainerID: "containerd://id-" + name + "-main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}

// rig runs a publisher in a synctest bubble.
type rig struct {
	t        *testing.T
	plugin   *plugin
	client   *fake.Clientset
	log      bubble.Log
	registry *prometheus.Registry
	stop     func()
}

// cluster returns a rig with these pods, and with a plugin that is not ready. The publisher is not started.
func cluster(t *testing.T, pods ...runtime.Object) *rig {
	return &rig{
		t: t, plugin: &plugin{cachetest.New(nodecache.State{NotReadySince: time.Now()})},
		client: fake.NewClientset(pods...),
	}
}

func both() podstatus.Options { return podstatus.Options{Conditions: true, Events: true} }

func (r *rig) start(o podstatus.Options) {
	r.t.Helper()
	r.registry = prometheus.NewRegistry()
	o.NodeName, o.Writes, o.Registry, o.Log = "worker", kubeapi.NewWrites(r.registry), r.registry, slog.New(slog.NewTextHandler(&r.log, nil))
	p := podstatus.New(r.plugin, apiserver.Core(r.client), o)
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}

	bubble.Pass(5 * time.Second)
}

// writes returns the write requests since the last call.
func (r *rig) writes() []string {
	var list []string
	for _, action := range r.client.Actions() {
		if patch, ok := action.(clienttesting.PatchAction); ok && string(patch.GetPatch()) == "{}" {
			continue
		}
		if verb := action.GetVerb(); verb == "create" || verb == "patch" || verb == "update" || verb == "delete" {
			list = append(list, verb+" "+action.GetResource().Resource+"/"+action.GetSubresource())
		}
	}
	r.client.ClearActions()
	return list
}

// forgetWrites makes writes and wantWrites ignore the write requests so far.
func (r *rig) forgetWrites() { r.client.ClearActions() }

func (r *rig) wantWrites(when string, want ...string) {
	r.t.Helper()
	if got := r.writes(); !slices.Equal(got, want) {
		r.t.Errorf("%s: wrote %q, want %q", when, got, want)
	}
}

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	pod := must.Get(r.client.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{}))(r.t)
	return pod
}

// condition returns the condition qos.noderesource.dev/Assigned of a pod. It is empty if the pod does not have it.
func (r *rig) condition(name string) corev1.PodCondition {
	r.t.Helper()
	if c := podspec.AssignedCondition(r.pod(name)); c != nil {
		return *c
	}
	return corev1.PodCondition{}
}

func (r *rig) wantCondition(when, name, want string) corev1.PodCondition {
	r.t.Helper()
	c := r.condition(name)
	if got := fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message); got != want {
		r.t.Errorf("%s: condition %q, want %q", when, got, want)
	}
	return c
}

func (r *rig) events() []string {
	r.t.Helper()
	list := must.Get(r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{}))(r.t)
	var events []string
	for i := range list.Items {
		e := &list.Items[i]
		events = append(events, fmt.Sprintf("%s %s x%d %s: %s", e.Type, e.Reason, e.Count, e.InvolvedObject.Name, e.Message))
	}
	slices.Sort(events)
	return events
}

func (r *rig) wantEvents(when string, want ...string) {
	r.t.Helper()
	if got := r.events(); !slices.Equal(got, want) {
		r.t.Errorf("%s: events %q, want %q", when, got, want)
	}
}

// annotate changes the request of a pod.
func (r *rig) annotate(name, request string) {
	r.t.Helper()
	r.setAnnotation(name, "container.qos.noderesource.dev/main", request)
}

// setAnnotation changes an annotation of a pod, and removes it if the value is "".
func (r *rig) setAnnotation(name, key, value string) {
	r.t.Helper()
	pod := r.pod(name)
	pod.Annotations[key] = value
	if value == "" {
		delete(pod.Annotations, key)
	}
	if _, err := r.client.CoreV1().Pods("default").Update(r.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.client.ClearActions()
}

func refusal(count uint64, first, last time.Time) []*qosv1alpha1.Refusal {
	return []*qosv1alpha1.Refusal{{
		PodUid: "uid-web", Namespace: "default", Pod: "web", Container: "main", Reason: "ClassFull",
		Message: fmt.Sprintf("class gold is full (try %d)", count), Count: count, FirstTime: timestamppb.New(first), LastTime: timestamppb.New(last),
	}}
}
