// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

const applied = "patch pods/status"

// TestAConditionIsWrittenOncePerChange also checks that a change has an Event, that a pod with only system defaults has no condition, and
// that a restart writes nothing.
func TestAConditionIsWrittenOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), pod("plain"))
		r.plugin.set(nil, "web=gold", "plain=")
		r.start(both())
		defer func() { r.stop() }()
		first := r.wantCondition("at first", "web", "True Assigned: main: k8s.io/rdt gold (container)")
		r.wantWrites("at first", applied)
		r.wantEvents("at first")
		if c := r.condition("plain"); c.Type != "" {
			t.Errorf("a pod that has only system defaults has the condition %v, want none", c)
		}

		if conditions := r.pod("web").Status.Conditions; len(conditions) != 2 {
			t.Errorf("conditions are %v; want the kubelet's condition kept", conditions)
		}

		r.plugin.set(nil, "web=gold", "plain=")
		bubble.Pass(time.Hour)
		r.wantWrites("in an idle hour")
		r.plugin.set(nil, "web=silver", "plain=")
		bubble.Pass(5 * time.Second)
		changed := r.wantCondition("after a change", "web", "True Assigned: main: k8s.io/rdt silver (container)")
		if !changed.LastTransitionTime.Equal(&first.LastTransitionTime) {
			t.Errorf("lastTransitionTime changed from %v to %v, although the status is the same", first.LastTransitionTime, changed.LastTransitionTime)
		}

		r.wantEvents("after a change", "Normal QOSClassChanged x1 web: main: k8s.io/rdt gold -> silver")
		r.wantWrites("for one change", applied, "create events/")
		for _, class := range []string{"gold", "silver"} {
			r.plugin.set(nil, "web="+class, "plain=")
			bubble.Pass(6 * time.Minute) // longer than the pause between two writes of an event
		}
		r.wantEvents("after the same change again", "Normal QOSClassChanged x1 web: main: k8s.io/rdt silver -> gold",
			"Normal QOSClassChanged x2 web: main: k8s.io/rdt gold -> silver")
		r.forgetWrites()
		r.stop()
		r.start(both())
		r.wantWrites("after a restart")
	})
}

func TestOnlyPodsOfTheNodeAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t)
		r.start(both())
		defer r.stop()
		requests := 0
		for _, action := range r.client.Actions() {
			var fields string
			switch a := action.(type) {
			case clienttesting.ListAction:
				fields = a.GetListRestrictions().Fields.String()
			case clienttesting.WatchAction:
				fields = a.GetWatchRestrictions().Fields.String()
			}
			if requests++; fields != "spec.nodeName=worker" {
				t.Errorf("%s %s with field selector %q", action.GetVerb(), action.GetResource().Resource, fields)
			}
		}

		if requests < 2 {
			t.Errorf("%d requests, want a list and a watch", requests)
		}
	})
}

func TestAPublisherNeedsANodeName(t *testing.T) {
	err := podstatus.New(&plugin{}, nil, podstatus.Options{}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("Run returned %v; want an error that names --node-name", err)
	}
}

func TestARefusalIsOneEventWithARisingCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		begin := time.Now()
		r.plugin.set(refusal(1, begin, begin))
		r.start(both())
		defer func() { r.stop() }()
		r.wantCondition("when refused", "web", "False ClassFull: class gold is full (try 1)")
		r.wantEvents("when refused", "Warning QOSClassRefused x1 web: class gold is full (try 1)")
		r.wantWrites("when refused", applied, "create events/")
		for i := range uint64(5) {
			r.plugin.set(refusal(2+i, begin, time.Now()))
			bubble.Pass(10 * time.Second)
		}

		// An event is written again after 5 minutes at the earliest.
		r.wantEvents("within 5 minutes", "Warning QOSClassRefused x1 web: class gold is full (try 1)")
		bubble.Pass(5 * time.Minute)
		r.wantEvents("after 5 minutes", "Warning QOSClassRefused x6 web: class gold is full (try 6)")
		r.stop()
		r.forgetWrites()
		r.start(both())
		r.wantWrites("after a restart")
		r.wantEvents("after a restart", "Warning QOSClassRefused x6 web: class gold is full (try 6)")
		r.plugin.set(nil, "web=gold")
		bubble.Pass(5 * time.Second)
		r.wantCondition("when there is room", "web", "True Assigned: main: k8s.io/rdt gold (container)")
	})
}

func TestDisabledConditionsAndEventsAreNotWritten(t *testing.T) {
	for _, c := range []struct {
		name    string
		options podstatus.Options
		want    []string // kinds of writes
	}{
		{"neither", podstatus.Options{}, nil},
		{"events alone", podstatus.Options{Events: true}, []string{"create events/"}},
		{"conditions alone", podstatus.Options{Conditions: true}, []string{applied}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"), pod("other"))
				r.plugin.set(refusal(1, time.Now(), time.Now()), "other=gold")
				r.start(c.options)
				defer r.stop()
				r.plugin.set(refusal(1, time.Now(), time.Now().Add(-time.Hour)), "other=silver") // changes the refusal without a new occurrence
				bubble.Pass(time.Minute)
				got := slices.Compact(r.writes())
				if !slices.Equal(got, c.want) {
					t.Errorf("wrote %q, want only %q", got, c.want)
				}
			})
		})
	}
}

func TestFinishedPodsAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed, terminating := pod("failed"), pod("terminating")
		failed.Status.Phase = corev1.PodFailed
		terminating.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		r := cluster(t, failed, terminating)
		r.plugin.set(nil, "failed=gold", "terminating=gold")
		r.start(both())
		defer r.stop()
		r.wantWrites("for finished pods")
	})
}

func TestNothingIsWrittenOrRequestedWhileThePluginIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.set(nil, "web=gold")
		updates := make(chan string, 9)
		follow := both()
		follow.FollowAnnotations = true
		follow.Update = func(_ context.Context, u *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			updates <- u.GetQosResources()[0].GetClass()
			return nil
		}

		r.start(follow)
		defer r.stop()
		state, _ := r.plugin.Get()
		state.NotReadySince = time.Now()
		r.plugin.Set(state)
		r.annotate("web", "rdt=silver")
		bubble.Pass(time.Hour)
		r.wantWrites("while it is away")
		if len(updates) > 0 {
			t.Errorf("class %s was requested from a plugin that is away", <-updates)
		}

		r.plugin.set(nil, "web=gold")
		bubble.Pass(5 * time.Second)
		if len(updates) != 1 {
			t.Errorf("%d updates when the plugin is back, want one", len(updates))
		}

		r.plugin.set(nil, "web=silver")
		bubble.Pass(5 * time.Second)
		r.wantCondition("when it is back", "web", "True Assigned: main: k8s.io/rdt silver (container)")
	})
}

func TestWritesResumeAfterAnOutage(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		line string
	}{
		{"after the API server was away", apierrors.NewServiceUnavailable("etcd is away"), "etcd is away"},
		{"after the API server was overloaded", apierrors.NewTooManyRequests("slowly", 20), "slowly"},
		{
			"after permission was missing", apierrors.NewForbidden(schema.GroupResource{Resource: "pods/status"}, "web",
				fmt.Errorf(`User "shim" cannot patch resource "pods/status" in API group "" in the namespace "default"`)),
			"shim may not patch pods/status",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				var back atomic.Bool
				r.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					return !back.Load(), nil, c.err
				})

				r.plugin.set(nil, "web=gold")
				r.start(both())
				defer r.stop()
				bubble.Pass(time.Hour)
				tries := len(r.writes())
				if tries < 2 || tries > 500 {
					t.Errorf("%d writes in an hour, want 2 to 500", tries)
				}

				if got := strings.Count(r.log.String(), "write the condition of pods"); got != 1 || !strings.Contains(r.log.String(), c.line) {
					t.Errorf("the log has %d lines: %s; want one with %q", got, r.log.String(), c.line)
				}

				back.Store(true)
				bubble.Pass(2 * time.Minute)
				r.wantCondition("when it is back", "web", "True Assigned: main: k8s.io/rdt gold (container)")
				if !strings.Contains(r.log.String(), "works again") {
					t.Errorf("the log is %s; want \"works again\"", r.log.String())
				}
			})
		})
	}
}

func TestAWriteToADeletedPodIsNotRetried(t *testing.T) {
	for name, err := range map[string]error{
		"the pod does not exist": apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web"),
		"the UID conflicts":      apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", fmt.Errorf("uid mismatch")),
		// A real API server answers so if another pod has the name.
		"the UID cannot be changed": apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), "other", "field is immutable"),
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				r.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
				r.plugin.set(refusal(1, time.Now(), time.Now()))
				r.start(both())
				defer r.stop()
				bubble.Pass(time.Hour)
				r.wantWrites("for a deleted pod", applied)
				if r.log.String() != "" {
					t.Errorf("logged %s, want nothing", r.log.String())
				}
			})
		})
	}
}

func TestMissingPermissionToWatchIsLoggedOnce(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				denied := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
					fmt.Errorf(`User "shim" cannot %s resource "pods" in API group "" at the cluster scope`, verb))
				if verb == "list" {
					r.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denied })
				} else {
					r.client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, denied })
				}

				r.start(both())
				defer r.stop()
				bubble.Pass(time.Hour)
				if log := r.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "shim may not "+verb+" pods") || !strings.Contains(log, "rbac.yaml") {
					t.Errorf("the log is %q; want one line with the remedy", log)
				}
			})
		})
	}
}

func TestAChangedAnnotationIsFollowedAndPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.set(nil, "web=gold")
		var full atomic.Bool
		full.Store(true)
		updates := make(chan string, 100)
		follow := both()
		follow.FollowAnnotations = true
		follow.Update = func(_ context.Context, u *qosv1alpha1.UpdateContainerQOSResourcesRequest) error {
			class := u.GetQosResources()[0].GetClass()
			updates <- u.GetPodUid() + "/" + u.GetContainer() + " " + class
			if full.Load() {
				return status.Error(codes.ResourceExhausted, "class silver is full")
			}
			r.plugin.set(nil, "web="+class)
			return nil
		}

		r.start(follow)
		defer r.stop()
		r.annotate("web", "rdt=silver")
		bubble.Pass(time.Minute)
		r.wantCondition("while silver is full", "web", "False ChangeRefused: class silver is full; in effect: main: k8s.io/rdt gold (container)")
		r.wantEvents("while silver is full", "Warning QOSChangeRefused x1 web: class silver is full")
		if first := <-updates; first != "uid-web/main silver" || len(updates) == 0 {
			t.Errorf("requested %q first, and then %d more times; want silver, more than once", first, len(updates))
		}

		full.Store(false)
		bubble.Pass(5 * time.Minute)
		r.wantCondition("when there is room", "web", "True Assigned: main: k8s.io/rdt silver (container)")
		events := r.events()
		if len(events) != 2 || events[0] != "Normal QOSClassChanged x1 web: main: k8s.io/rdt gold -> silver" {
			t.Errorf("events %q; want the change and the refusal", events)
		}
	})
}

func TestAnnotationsAreNotFollowedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.set(nil, "web=gold")
		r.start(both()) // Update is nil, so a call would panic
		defer r.stop()
		r.annotate("web", "rdt=silver")
		bubble.Pass(time.Minute)
		r.wantCondition("by default", "web", "True Assigned: main: k8s.io/rdt gold (container)")
		r.wantWrites("by default")
	})
}

func TestWritesAndPodsInTheCacheAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"), pod("other"))
		r.plugin.set(refusal(1, time.Now(), time.Now()))
		r.start(both())
		defer r.stop()
		want := `
# HELP qos_shim_api_writes_total Write requests to the Kubernetes API, by kind of object and outcome.
# TYPE qos_shim_api_writes_total counter
qos_shim_api_writes_total{object="event",outcome="ok"} 1
qos_shim_api_writes_total{object="pod-condition",outcome="ok"} 1
# HELP qos_shim_pods Pods of this node in the cache of the Kubernetes API.
# TYPE qos_shim_pods gauge
qos_shim_pods 2
`

		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
