// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodefeed"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
)

// plugin is one whose state a test sets.
type plugin struct {
	mu      sync.Mutex
	state   nodefeed.State
	changed chan struct{}
}

func (p *plugin) Get() (nodefeed.State, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.changed
}

func (p *plugin) set(state nodefeed.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	close(p.changed)
	p.changed = make(chan struct{})
}

// tell says which class of k8s.io/rdt the container main of each pod has, and what was refused.
func (p *plugin) tell(refusals []*qosv1alpha1.Refusal, classes ...string) {
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
	p.set(nodefeed.State{Assignments: list, Status: &qosv1alpha1.StatusResponse{Resources: &qosv1alpha1.ResourcesInfo{ContainerQosResources: offered}}})
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

// rig is a publisher within a bubble.
type rig struct {
	t        *testing.T
	plugin   *plugin
	client   *fake.Clientset
	log      *strings.Builder
	registry *prometheus.Registry
	stop     func()
}

// cluster makes an API with pods, and a plugin that has told nothing.
func cluster(t *testing.T, pods ...runtime.Object) *rig {
	return &rig{
		t: t, plugin: &plugin{state: nodefeed.State{AwaySince: time.Now()}, changed: make(chan struct{})},
		client: fake.NewClientset(pods...), log: &strings.Builder{}, registry: prometheus.NewRegistry(),
	}
}

func both() podstatus.Options { return podstatus.Options{Conditions: true, Events: true} }

func (r *rig) start(o podstatus.Options) {
	r.t.Helper()
	r.registry = prometheus.NewRegistry()
	o.NodeName, o.Registry, o.Log = "worker", r.registry, slog.New(slog.NewTextHandler(r.log, nil))
	p := podstatus.New(r.plugin, r.client, o)
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
	r.pass(5 * time.Second)
}

func (r *rig) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// writes are the requests that write, since the last call.
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

func (r *rig) wantWrites(when string, want ...string) {
	r.t.Helper()
	if got := r.writes(); !slices.Equal(got, want) {
		r.t.Errorf("%s: wrote %q, want %q", when, got, want)
	}
}

func (r *rig) condition(name string) corev1.PodCondition {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == podstatus.ConditionType {
			return c
		}
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
	list, err := r.client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
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

const applied = "patch pods/status"

func TestAConditionIsWrittenOnceAndAgainWhenTheClassChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), pod("plain"))
		r.plugin.tell(nil, "web=gold", "plain=")
		r.start(both())
		defer func() { r.stop() }()
		first := r.wantCondition("at first", "web", "True Assigned: main: k8s.io/rdt gold (container)")
		r.wantWrites("at first", applied)
		if c := r.condition("plain"); c.Type != "" {
			t.Errorf("a pod with nothing but system defaults has %v", c)
		}
		web, err := r.client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || len(web.Status.Conditions) != 2 {
			t.Errorf("conditions are %v, %v; want that of the kubelet beside ours", web.Status.Conditions, err)
		}
		r.plugin.tell(nil, "web=gold", "plain=")
		r.pass(time.Hour)
		r.wantWrites("in an idle hour")
		r.plugin.tell(nil, "web=silver", "plain=")
		r.pass(5 * time.Second)
		changed := r.wantCondition("after a change", "web", "True Assigned: main: k8s.io/rdt silver (container)")
		if !changed.LastTransitionTime.Equal(&first.LastTransitionTime) {
			t.Errorf("transition moved from %v to %v without another status", first.LastTransitionTime, changed.LastTransitionTime)
		}
		r.wantEvents("after a change", "Normal QOSClassChanged x1 web: main: k8s.io/rdt gold -> silver")
		r.wantWrites("for one change", applied, "create events/")
		r.stop()
		r.start(both())
		r.wantWrites("after a restart")
	})
}

func TestOnlyPodsOfTheNodeAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t)
		r.start(both())
		defer r.stop()
		asked := 0
		for _, action := range r.client.Actions() {
			var fields string
			switch a := action.(type) {
			case clienttesting.ListAction:
				fields = a.GetListRestrictions().Fields.String()
			case clienttesting.WatchAction:
				fields = a.GetWatchRestrictions().Fields.String()
			}
			if asked++; fields != "spec.nodeName=worker" {
				t.Errorf("asked %s %s of %q", action.GetVerb(), action.GetResource().Resource, fields)
			}
		}
		if asked < 2 {
			t.Errorf("%d requests, want a list and a watch", asked)
		}
	})
	err := podstatus.New(&plugin{}, fake.NewClientset(), podstatus.Options{Registry: prometheus.NewRegistry()}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("without a node name: %v; want the remedy", err)
	}
}

func refusal(count uint64, first, last time.Time) []*qosv1alpha1.Refusal {
	return []*qosv1alpha1.Refusal{{
		PodUid: "uid-web", Namespace: "default", Pod: "web", Container: "main", Reason: "ClassFull",
		Message: fmt.Sprintf("class gold is full (try %d)", count), Count: count, FirstTime: timestamppb.New(first), LastTime: timestamppb.New(last),
	}}
}

func TestARefusalIsOneEventWhoseCountGoesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		begin := time.Now()
		r.plugin.tell(refusal(1, begin, begin))
		r.start(both())
		defer func() { r.stop() }()
		r.wantCondition("refused", "web", "False ClassFull: class gold is full (try 1)")
		r.wantEvents("refused", "Warning QOSClassRefused x1 web: class gold is full (try 1)")
		r.wantWrites("refused", applied, "create events/")
		for i := range uint64(5) {
			r.plugin.tell(refusal(2+i, begin, time.Now()))
			r.pass(10 * time.Second)
		}
		r.wantEvents("within minutes", "Warning QOSClassRefused x1 web: class gold is full (try 1)")
		r.pass(5 * time.Minute)
		r.wantEvents("after minutes", "Warning QOSClassRefused x6 web: class gold is full (try 6)")
		r.stop()
		r.writes()
		r.start(both())
		r.wantWrites("after a restart")
		r.wantEvents("after a restart", "Warning QOSClassRefused x6 web: class gold is full (try 6)")
		r.plugin.tell(nil, "web=gold")
		r.pass(5 * time.Second)
		r.wantCondition("when there is room", "web", "True Assigned: main: k8s.io/rdt gold (container)")
	})
}

func TestWhatIsSwitchedOffIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		name    string
		options podstatus.Options
		want    []string
	}{
		{"neither", podstatus.Options{}, nil},
		{"events alone", podstatus.Options{Events: true}, []string{"create events/", "create events/"}},
		{"conditions alone", podstatus.Options{Conditions: true}, []string{applied, applied}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"), pod("other"))
				r.plugin.tell(refusal(1, time.Now(), time.Now()), "other=gold")
				r.start(c.options)
				defer r.stop()
				r.plugin.tell(refusal(1, time.Now(), time.Now().Add(-time.Hour)), "other=silver")
				r.pass(time.Minute)
				got := slices.Compact(r.writes())
				if !slices.Equal(got, slices.Compact(c.want)) {
					t.Errorf("wrote %q, want only %q", got, c.want)
				}
			})
		})
	}
}

func TestPodsThatEndAreLeftAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, terminating := pod("failed"), pod("terminating")
		failed.Status.Phase = corev1.PodFailed
		terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r := cluster(t, failed, terminating)
		r.plugin.tell(nil, "failed=gold", "terminating=gold")
		r.start(both())
		defer r.stop()
		r.wantWrites("for pods that end")
	})
}

func TestWhatIsToldStaysWhileThePluginIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.tell(nil, "web=gold")
		r.start(both())
		defer r.stop()
		r.writes()
		state, _ := r.plugin.Get()
		state.AwaySince, state.Assignments = time.Now(), nil
		r.plugin.set(state)
		r.pass(time.Hour)
		r.wantWrites("while it is away")
		r.plugin.tell(nil, "web=silver")
		r.pass(5 * time.Second)
		r.wantCondition("when it is back", "web", "True Assigned: main: k8s.io/rdt silver (container)")
	})
}

func TestWritesComeBackWhenTheAPIDoes(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		line string
	}{
		{"after it was away", apierrors.NewServiceUnavailable("etcd is away"), "etcd is away"},
		{"after it was overloaded", apierrors.NewTooManyRequests("slowly", 20), "overloaded"},
		{
			"after permission was missing", apierrors.NewForbidden(schema.GroupResource{Resource: "pods/status"}, "web",
				fmt.Errorf(`User "shim" cannot patch resource "pods/status" in API group "" in the namespace "default"`)),
			"shim may not patch pods/status",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				var mu sync.Mutex
				answer := c.err
				r.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					mu.Lock()
					defer mu.Unlock()
					return answer != nil, nil, answer
				})
				r.plugin.tell(nil, "web=gold")
				r.start(both())
				defer r.stop()
				r.pass(time.Hour)
				tries := len(r.writes())
				if tries < 2 || tries > 500 {
					t.Errorf("%d tries in an hour", tries)
				}
				if got := strings.Count(r.log.String(), "write the condition of pods"); got != 1 || !strings.Contains(r.log.String(), c.line) {
					t.Errorf("the log has %d lines: %s; want one with %q", got, r.log, c.line)
				}
				mu.Lock()
				answer = nil
				mu.Unlock()
				r.pass(2 * time.Minute)
				r.wantCondition("when it is back", "web", "True Assigned: main: k8s.io/rdt gold (container)")
				if !strings.Contains(r.log.String(), "works again") {
					t.Errorf("the log does not say that it works again: %s", r.log)
				}
			})
		})
	}
}

func TestAPodThatIsGoneIsForgotten(t *testing.T) {
	for name, err := range map[string]error{
		"not found":       apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web"),
		"another pod now": apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", fmt.Errorf("uid mismatch")),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				r.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
				r.plugin.tell(refusal(1, time.Now(), time.Now()))
				r.start(both())
				defer r.stop()
				r.pass(time.Hour)
				r.wantWrites("for a pod that is gone", applied)
				if r.log.Len() > 0 {
					t.Errorf("it is not worth a line: %s", r.log)
				}
			})
		})
	}
}

func TestMissingPermissionToWatchIsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
				fmt.Errorf(`User "shim" cannot list resource "pods" in API group "" at the cluster scope`))
		})
		r.start(both())
		defer r.stop()
		r.pass(time.Hour)
		if log := r.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "shim may not list pods") || !strings.Contains(log, "rbac.yaml") {
			t.Errorf("the log is %q; want one line with the remedy", log)
		}
	})
}

func TestAChangedAnnotationIsFollowedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.tell(nil, "web=gold")
		var mu sync.Mutex
		var asked []string
		var full error
		answer := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			full = err
		}
		follow := both()
		follow.FollowAnnotations = true
		follow.Update = func(_ context.Context, u *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			mu.Lock()
			defer mu.Unlock()
			class := u.GetQosResources()[0].GetClass()
			asked = append(asked, u.GetPodUid()+"/"+u.GetContainer()+" "+class)
			if full == nil {
				r.plugin.tell(nil, "web="+class)
			}
			return full
		}
		r.start(follow)
		defer r.stop()
		r.writes()
		answer(status.Error(codes.ResourceExhausted, "class silver is full"))
		r.annotate("web", "rdt=silver")
		r.pass(time.Minute)
		r.wantCondition("while silver is full", "web", "False ChangeRefused: class silver is full; in effect: main: k8s.io/rdt gold (container)")
		r.wantEvents("while silver is full", "Warning QOSChangeRefused x1 web: class silver is full")
		mu.Lock()
		if len(asked) < 2 || asked[0] != "uid-web/main silver" {
			t.Errorf("asked for %q; want silver, more than once", asked)
		}
		mu.Unlock()
		answer(nil)
		r.pass(5 * time.Minute)
		r.wantCondition("when there is room", "web", "True Assigned: main: k8s.io/rdt silver (container)")
		events := r.events()
		if len(events) != 2 || events[0] != "Normal QOSClassChanged x1 web: main: k8s.io/rdt gold -> silver" {
			t.Errorf("events %q; want the change, beside the refusal", events)
		}
	})
}

func (r *rig) annotate(name, request string) {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{})
	if err == nil {
		pod.Annotations["container.qos.noderesource.dev/main"] = request
		_, err = r.client.CoreV1().Pods("default").Update(r.t.Context(), pod, metav1.UpdateOptions{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.client.ClearActions()
}

func TestAnnotationsAreNotFollowedUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.tell(nil, "web=gold")
		r.start(both()) // an Update would be a call of nil
		defer r.stop()
		r.annotate("web", "rdt=silver")
		r.pass(time.Minute)
		r.wantCondition("unasked", "web", "True Assigned: main: k8s.io/rdt gold (container)")
		r.wantWrites("unasked")
	})
}

func TestItCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), pod("other"))
		r.plugin.tell(refusal(1, time.Now(), time.Now()))
		r.start(both())
		defer r.stop()
		want := `
# HELP qos_shim_api_writes_total Requests to the Kubernetes API that write, by kind of object and by what came of them.
# TYPE qos_shim_api_writes_total counter
qos_shim_api_writes_total{object="event",outcome="ok"} 1
qos_shim_api_writes_total{object="pod-condition",outcome="ok"} 1
# HELP qos_shim_pods Pods of this node that the shim knows of from the Kubernetes API.
# TYPE qos_shim_pods gauge
qos_shim_pods 2
`
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
