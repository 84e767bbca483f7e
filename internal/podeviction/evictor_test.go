// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podeviction_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podeviction"
)

// evictedEvent is that of pod web.
const evictedEvent = "Warning QOSClassRemoved uid-web: evicted: container main: class gold was taken out"

func TestEvictions(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a pod that is to be evicted is evicted once, and told": func(t *testing.T) {
			r := start(t, pod("a/web"), pod("a/other"))
			r.wish("a/web")
			r.pass(time.Hour)
			r.wish("a/web")
			r.pass(time.Hour)
			r.wantAsked("in the end", "web")
			r.wantEvents("in the end", evictedEvent)
			r.wantLog("in the end", "evicted")
			if diff := cmp.Diff(map[string]int{"evicted": 1}, r.results()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		},
		"a pod with several containers is one": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.feed.Set(nodecache.State{Assignments: &qosv1alpha1.ListAssignmentsResponse{
				Evictions: []*qosv1alpha1.Eviction{eviction("a", "web", "main"), eviction("a", "web", "side")},
			}})
			r.pass(time.Minute)
			r.wantAsked("in the end", "web")
			r.wantEvents("in the end", evictedEvent+"; container side: class gold was taken out")
		},
		"a class that is back soon evicts nobody": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.wish("a/web")
			r.pass(9 * time.Second)
			r.wish()
			r.pass(time.Second)
			r.wish("a/web")
			r.pass(9 * time.Second)
			r.wish()
			r.pass(time.Hour)
			r.wantAsked("in the end")
		},
		"while the plugin is away nobody is evicted": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.wish("a/web")
			state, _ := r.feed.Get()
			away := state
			away.NotReadySince = time.Now()
			r.feed.Set(away)
			r.pass(time.Hour)
			r.wantAsked("while it is away")
			r.feed.Set(state)
			r.pass(time.Minute)
			r.wantAsked("when it is back", "web")
		},
		"who wants no events gets none": func(t *testing.T) {
			r := startWith(t, podeviction.Options{NodeName: "worker"}, pod("a/web"))
			r.wish("a/web")
			r.pass(time.Minute)
			r.wantAsked("in the end", "web")
			r.wantEvents("in the end")
		},
		"events that cannot be written keep nobody from being evicted": func(t *testing.T) {
			pods, names := several(3)
			r := start(t, pods...)
			r.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("etcd is away")
			})
			r.wish(names...)
			r.pass(time.Minute)
			r.wantAsked("in the end", "p0", "p1", "p2")
			r.wantLog("in the end", "evicted", "write events", "evicted", "evicted")
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPodsThatAreNotThereToBeEvictedAreLeftAlone(t *testing.T) {
	for _, test := range []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"one that is gone", nil, "gone"},
		{"another of the name", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.UID = "uid-new" })}, "gone"},
		{"one that is being deleted", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
		})}, "gone"},
		{"one that has succeeded", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, "gone"},
		{"one that has failed", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, "gone"},
		{"one of another node", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Spec.NodeName = "another" })}, "gone"},
		{"a static one", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) {
			p.UID, p.Annotations = "uid-mirror", map[string]string{corev1.MirrorPodAnnotationKey: "uid-web"}
		})}, "static"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, test.pods...)
				r.wish("a/web")
				r.pass(time.Hour)
				r.wantAsked("in an hour")
				if diff := cmp.Diff(map[string]int{test.want: 1}, r.results()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				if test.want == "static" {
					r.wantLog("in an hour", "change its file")
					r.wantEvents("in an hour", "Warning QOSClassRemoved uid-web: a static pod cannot be evicted: the kubelet would make it again; "+
						"change its file: container main: class gold was taken out")
				} else {
					r.wantLog("in an hour")
					r.wantEvents("in an hour")
				}
			})
		})
	}
}

func TestPodsThatGoMeanwhileAreNoMistake(t *testing.T) {
	terminating := apierrors.NewForbidden(podsOf, "web", errors.New("unable to create new content in namespace a because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, answer := range map[string]error{
		"no pod":                        apierrors.NewNotFound(podsOf, "web"),
		"another pod":                   apierrors.NewConflict(podsOf, "web", errors.New("the UID in the precondition (a) does not match the UID in record (b)")),
		"a namespace that is going too": terminating,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, pod("a/web"))
				r.answers(func(string) error { return answer })
				r.wish("a/web")
				r.pass(time.Hour)
				r.wantAsked("in an hour", "web")
				r.wantLog("in an hour")
				r.wantEvents("in an hour")
			})
		})
	}
}

func TestABudgetIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, pod("a/web"))
		r.answers(func(string) error { return ofBudget() })
		r.wish("a/web")
		r.pass(time.Hour)
		if tries := len(r.taken()); tries < 60 || tries > 300 {
			t.Errorf("asked %d times in an hour, want about every half minute", tries)
		}
		const waits = "Warning QOSClassRemoved uid-web: to be evicted as soon as its PodDisruptionBudget allows it: container main: class gold was taken out"
		r.wantLog("in an hour", "disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently")
		r.wantEvents("in an hour", waits)
		r.answers(allow)
		r.pass(time.Minute + time.Second)
		r.wantAsked("when it allows it", "web")
		r.wantEvents("when it allows it", evictedEvent, waits)
		r.wantLog("when it allows it", "evicted")
	})
}

func TestAMissingRightIsOneLineThatSaysWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"a/one", "a/two", "b/three", "c/four"}
		r := start(t, pod(all[0]), pod(all[1]), pod(all[2]), pod(all[3]))
		r.answers(ofRights)
		r.wish(all...)
		r.pass(time.Hour)
		r.wantLog("in an hour", `cannot create resource \"pods/eviction\"`)
		if tries := len(r.taken()); tries > 500 {
			t.Errorf("asked %d times in an hour for four pods in three namespaces", tries)
		}
		r.wantEvents("in an hour")
		r.wish()
		r.pass(time.Second)
		r.wish(all...)
		r.pass(time.Hour)
		r.wantLog("when another class is removed", "kubectl apply -k deploy/kubernetes-eviction")
		r.taken()
		r.answers(allow)
		r.pass(2 * time.Minute)
		asked := r.taken()
		if slices.Sort(asked); !slices.Equal(asked, []string{"four", "one", "three", "two"}) {
			t.Errorf("with the right, evictions of %q were asked for", asked)
		}
	})
}

func TestARightInSomeNamespacesIsUsedThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, pod("a/closed"), pod("b/open"), pod("b/too"))
		r.answers(func(name string) error {
			if name == "closed" {
				return ofRights(name)
			}
			return nil
		})
		r.wish("a/closed", "b/open", "b/too")
		r.pass(11 * time.Second)
		if asked := r.taken(); !slices.Contains(asked, "open") || !slices.Contains(asked, "too") {
			t.Errorf("evictions of %q were asked for, not all that may be", asked)
		}
	})
}

func TestWhatIsWrongWithOnePodIsOneLineAndKeepsNoOther(t *testing.T) {
	refused := apierrors.NewForbidden(podsOf, "web", errors.New("denied by policy keep-web"))
	twoBudgets := apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget"))
	conflict := apierrors.NewConflict(podsOf, "web", errors.New("the object has been modified"))
	for name, answer := range map[string]error{"denied by policy keep-web": refused, "more than one PodDisruptionBudget": twoBudgets, "the object has been modified": conflict} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, pod("a/web"), pod("a/other"))
				r.answers(func(name string) error {
					if name == "web" {
						return answer
					}
					return nil
				})
				r.wish("a/web", "a/other")
				r.pass(11 * time.Second)
				if asked := r.taken(); !slices.Contains(asked, "other") {
					t.Errorf("evictions of %q were asked for, not of the other", asked)
				}
				r.pass(time.Hour)
				r.wantLog("in an hour", name, "evicted")
				r.answers(allow)
				r.pass(time.Minute + time.Second)
				r.wantLog("when it is put right", "evicted")
			})
		})
	}
}

func TestAnAPIServerThatIsAwayIsLeftAloneForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, names := several(50)
		r := start(t, pods...)
		r.answers(func(string) error { return apierrors.NewServiceUnavailable("etcd is away") })
		r.wish(names...)
		r.pass(time.Hour)
		if tries := len(r.taken()); tries < 60 || tries > 300 {
			t.Errorf("asked %d times in an hour, want about every half minute", tries)
		}
		r.wantLog("in an hour", "etcd is away")
		r.answers(allow)
		r.pass(2 * time.Minute)
		if got := len(r.taken()); got != 50 {
			t.Errorf("%d pods are evicted when it is back, want 50", got)
		}
		if said := r.log.take(); strings.Count(said, "works again") != 1 {
			t.Errorf("logged %s", said)
		}
	})
}

func TestANodeEvictsAFewPodsAtATimeAndStopsWhenTheClassIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, names := several(100)
		r := start(t, pods...)
		r.wish(names...)
		r.pass(10*time.Second + time.Millisecond)
		if got := len(r.taken()); got != 5 {
			t.Errorf("%d pods are evicted at once, want 5", got)
		}
		r.pass(20 * time.Second)
		if got := len(r.taken()); got < 19 || got > 21 {
			t.Errorf("%d pods are evicted in 20 s, want 20", got)
		}
		r.wish()
		r.pass(time.Hour)
		r.wantAsked("after the class was back")
	})
}

func TestManyPodsThatWaitForABudgetKeepNoOtherWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, names := several(60)
		r := start(t, append(pods, pod("b/free"))...)
		r.answers(func(name string) error {
			if name != "free" {
				return ofBudget()
			}
			return nil
		})
		r.wish(names...)
		r.pass(5 * time.Minute)
		r.wish(append(names, "b/free")...)
		r.pass(10 * time.Minute)
		if asked := r.taken(); !slices.Contains(asked, "free") {
			t.Errorf("none of %d evictions was of the pod that could go", len(asked))
		}
	})
}
