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
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

// evictedEvent is the event of pod web after its eviction.
const evictedEvent = "Warning QOSClassRemoved uid-web: evicted: container main: class gold was taken out"

// TestEvictions runs each case in a bubble of synctest, in which time passes at once.
func TestEvictions(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a target is evicted once and gets an event": func(t *testing.T) {
			r := start(t, pod("a/web"), pod("a/other"))
			r.setTargets("a/web")
			bubble.Pass(time.Hour)
			r.setTargets("a/web")
			bubble.Pass(time.Hour)
			r.wantEvictions("in the end", "web")
			r.wantEvents("in the end", evictedEvent)
			r.log.Expect(t, "evicted")
			if diff := cmp.Diff(map[string]int{"evicted": 1}, r.results()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		},
		"a pod with several containers is evicted once": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.plugin.Set(nodecache.State{Assignments: &qosv1alpha1.ListAssignmentsResponse{
				Evictions: []*qosv1alpha1.Eviction{eviction("a", "web", "main"), eviction("a", "web", "side")},
			}})
			bubble.Pass(time.Minute)
			r.wantEvictions("in the end", "web")
			r.wantEvents("in the end", evictedEvent+"; container side: class gold was taken out")
		},
		"a class that returns soon evicts no pod": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.setTargets("a/web")
			bubble.Pass(targetTime - time.Second)
			r.setTargets()
			bubble.Pass(time.Second)
			r.setTargets("a/web")
			bubble.Pass(targetTime - time.Second)
			r.setTargets()
			bubble.Pass(time.Hour)
			r.wantEvictions("in the end")
		},
		"while the plugin is away no pod is evicted": func(t *testing.T) {
			r := start(t, pod("a/web"))
			r.setTargets("a/web")
			state, _ := r.plugin.Get()
			away := state
			away.NotReadySince = time.Now()
			r.plugin.Set(away)
			bubble.Pass(time.Hour)
			r.wantEvictions("while it is away")
			r.plugin.Set(state)
			bubble.Pass(time.Minute)
			r.wantEvictions("when it is back", "web")
		},
		"without the option Events, no event is written": func(t *testing.T) {
			r := startWith(t, podeviction.Options{NodeName: "worker"}, pod("a/web"))
			r.setTargets("a/web")
			bubble.Pass(time.Minute)
			r.wantEvictions("in the end", "web")
			r.wantEvents("in the end")
		},
		"events that cannot be written block no eviction": func(t *testing.T) {
			pods, names := several(3)
			r := start(t, pods...)
			r.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("etcd is away")
			})
			r.setTargets(names...)
			bubble.Pass(time.Minute)
			if requests := r.takeRequests(); !slices.Equal(slices.Sorted(slices.Values(requests)), []string{"p0", "p1", "p2"}) {
				t.Errorf("requested evictions of %q, want p0, p1 and p2 in any order", requests)
			}
			r.log.Expect(t, "evicted", "write events", "evicted", "evicted")
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func TestPodsThatCannotBeEvictedAreSkipped(t *testing.T) {
	for _, test := range []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"a deleted pod", nil, "gone"},
		{"another pod with the same name", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.UID = "uid-new" })}, "gone"},
		{"a terminating pod", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
		})}, "gone"},
		{"a succeeded pod", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, "gone"},
		{"a failed pod", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, "gone"},
		{"a pod of another node", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) { p.Spec.NodeName = "another" })}, "gone"},
		{"a static pod", []*corev1.Pod{pod("a/web", func(p *corev1.Pod) {
			p.UID, p.Annotations = "uid-mirror", map[string]string{corev1.MirrorPodAnnotationKey: "uid-web"}
		})}, "static"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, test.pods...)
				r.setTargets("a/web")
				bubble.Pass(time.Hour)
				r.wantEvictions("in an hour")
				if diff := cmp.Diff(map[string]int{test.want: 1}, r.results()); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}

				if test.want == "static" {
					r.log.Expect(t, "change its manifest file")
					r.wantEvents("in an hour", "Warning QOSClassRemoved uid-web: a static pod cannot be evicted, because the kubelet would recreate it; change its manifest file: container main: class gold was taken out")
				} else {
					r.log.Expect(t)
					r.wantEvents("in an hour")
				}
			})
		})
	}
}

// TestPodsThatVanishMeanwhileAreNotReported: the evictor finds the pod, but the answer to the eviction shows that the pod is gone, or goes
// with its namespace.
func TestPodsThatVanishMeanwhileAreNotReported(t *testing.T) {
	terminating := apierrors.NewForbidden(podsOf, "web", errors.New("unable to create new content in namespace a because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, answer := range map[string]error{
		"the pod is deleted":             apierrors.NewNotFound(podsOf, "web"),
		"another pod has the name":       apierrors.NewConflict(podsOf, "web", errors.New("the UID in the precondition (a) does not match the UID in record (b)")),
		"the namespace is being deleted": terminating,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, pod("a/web"))
				r.setAnswer(func(string) error { return answer })
				r.setTargets("a/web")
				bubble.Pass(time.Hour)
				r.wantEvictions("in an hour", "web")
				r.log.Expect(t)
				r.wantEvents("in an hour")
			})
		})
	}
}

func TestAPodDisruptionBudgetIsRespected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, pod("a/web"))
		r.setAnswer(func(string) error { return budgetError() })
		r.setTargets("a/web")
		bubble.Pass(time.Hour)
		r.wantRetriesOfAnHour()

		const waits = "Warning QOSClassRemoved uid-web: the pod will be evicted as soon as its PodDisruptionBudget allows it: container main: class gold was taken out"
		r.log.Expect(t, "disruption budget. The disruption budget web needs 1 healthy pods and has 1 currently")
		r.wantEvents("in an hour", waits)
		r.setAnswer(allow)
		bubble.Pass(time.Minute + time.Second) // the next retry comes within a minute
		r.wantEvictions("when the budget allows the eviction", "web")
		r.wantEvents("when the budget allows the eviction", evictedEvent, waits)
		r.log.Expect(t, "evicted")
	})
}

func TestAMissingPermissionIsLoggedOnceForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"a/one", "a/two", "b/three", "c/four"}
		r := start(t, pod(all[0]), pod(all[1]), pod(all[2]), pod(all[3]))
		r.setAnswer(rightsError)
		r.setTargets(all...)
		bubble.Pass(time.Hour)
		r.log.Expect(t, `cannot create resource \"pods/eviction\"`)
		if tries := len(r.takeRequests()); tries > 500 {
			t.Errorf("%d requests in an hour, want about every half minute in each of three namespaces", tries)
		}

		r.wantEvents("in an hour")
		r.setTargets() // the missing permission is logged again only after no pod was a target
		bubble.Pass(time.Second)
		r.setTargets(all...)
		bubble.Pass(time.Hour)
		r.log.Expect(t, "set the value evictions of the Helm chart, or: kubectl apply -k deploy/kubernetes-eviction")
		r.takeRequests()
		r.setAnswer(allow)
		bubble.Pass(2 * time.Minute)
		requests := slices.Sorted(slices.Values(r.takeRequests()))
		if !slices.Equal(requests, []string{"four", "one", "three", "two"}) {
			t.Errorf("after the permission was granted, requested evictions of %q, want all four pods", requests)
		}
	})
}

func TestPodsAreEvictedInTheNamespacesWhereThatIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, pod("a/closed"), pod("b/open"), pod("b/too"))
		r.setAnswer(func(name string) error {
			if name == "closed" {
				return rightsError(name)
			}
			return nil
		})
		r.setTargets("a/closed", "b/open", "b/too")
		bubble.Pass(targetTime + time.Second)
		if requests := r.takeRequests(); !slices.Contains(requests, "open") || !slices.Contains(requests, "too") {
			t.Errorf("requested evictions only of %q, want those of all pods that may be evicted", requests)
		}
	})
}

func TestAFailureOfOnePodIsLoggedOnceAndBlocksNoOther(t *testing.T) {
	refused := apierrors.NewForbidden(podsOf, "web", errors.New("denied by policy keep-web"))
	twoBudgets := apierrors.NewInternalError(errors.New("This pod has more than one PodDisruptionBudget"))
	conflict := apierrors.NewConflict(podsOf, "web", errors.New("the object has been modified"))
	for name, answer := range map[string]error{"denied by policy keep-web": refused, "more than one PodDisruptionBudget": twoBudgets, "the object has been modified": conflict} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, pod("a/web"), pod("a/other"))
				r.setAnswer(func(name string) error {
					if name == "web" {
						return answer
					}
					return nil
				})

				r.setTargets("a/web", "a/other")
				bubble.Pass(targetTime + time.Second)
				if requests := r.takeRequests(); !slices.Contains(requests, "other") {
					t.Errorf("evictions were requested for %q, want also the pod other", requests)
				}

				bubble.Pass(time.Hour)
				r.log.Expect(t, name, "evicted")
				r.setAnswer(allow)
				bubble.Pass(time.Minute + time.Second) // the longest delay of a retry is a minute
				r.log.Expect(t, "evicted")
			})
		})
	}
}

func TestAnUnavailableAPIServerIsRetriedOnceForAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, names := several(50)
		r := start(t, pods...)
		r.setAnswer(func(string) error { return apierrors.NewServiceUnavailable("etcd is away") })
		r.setTargets(names...)
		bubble.Pass(time.Hour)
		r.wantRetriesOfAnHour()

		r.log.Expect(t, "etcd is away")
		r.setAnswer(allow)
		bubble.Pass(2 * time.Minute)
		if got := len(r.takeRequests()); got != 50 {
			t.Errorf("%d pods are evicted when the API server is back, want 50", got)
		}

		if said := r.log.String(); strings.Count(said, "works again") != 1 {
			t.Errorf("logged %s", said)
		}
	})
}

// TestEvictionsAreRateLimitedAndStopWhenTheClassReturns: five pods may be evicted at once, and then one each second.
func TestEvictionsAreRateLimitedAndStopWhenTheClassReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, names := several(100)
		r := start(t, pods...)
		r.setTargets(names...)
		bubble.Pass(targetTime + time.Millisecond)
		if got := len(r.takeRequests()); got != 5 {
			t.Errorf("%d pods are evicted at once, want 5", got)
		}

		bubble.Pass(20 * time.Second)
		if got := len(r.takeRequests()); got < 19 || got > 21 {
			t.Errorf("%d pods are evicted in 20 s, want 20", got)
		}

		r.setTargets()
		bubble.Pass(time.Hour)
		r.wantEvictions("after the class was back")
	})
}

func TestPodsThatWaitForABudgetBlockNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// After some minutes, each pod is retried about every half minute. 60 pods then need two evictions per second, and the limit is one.
		pods, names := several(60)
		r := start(t, append(pods, pod("b/free"))...)
		r.setAnswer(func(name string) error {
			if name != "free" {
				return budgetError()
			}
			return nil
		})

		r.setTargets(names...)
		bubble.Pass(5 * time.Minute)
		r.setTargets(append(names, "b/free")...)
		bubble.Pass(10 * time.Minute)
		if requests := r.takeRequests(); !slices.Contains(requests, "free") {
			t.Errorf("none of %d requests was for the pod without a budget", len(requests))
		}
	})
}
