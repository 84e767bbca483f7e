// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// once calls reconcile once, at a time after the start of the test, and returns the time until the next call.
func (r *rig) once(t *testing.T, at time.Duration) (again time.Duration) {
	t.Helper()
	r.synced(t)
	start := time.Unix(1_000_000, 0)
	r.now = func() time.Time { return start.Add(at) }
	again, err := r.reconcile(t.Context(), "ns/db")
	if err != nil {
		t.Logf("reconcile: %v", err)
	}
	return again
}

// synced waits until the watch caches have all that the API server has.
func (r *rig) synced(t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		for _, informer := range r.Informers {
			if !informer.HasSynced() {
				return false, nil
			}
		}
		same := true
		if object, err := r.dynamic.Tracker().Get(objectResource(), "ns", "db"); err == nil {
			same = hasSame(r.objects, object.(*unstructured.Unstructured))
		}
		set, err := r.client.AppsV1().StatefulSets("ns").Get(ctx, "db", metav1.GetOptions{})
		if err == nil {
			cached, err := replicated.Get[*appsv1.StatefulSet](r.sets, "ns/db")
			same = same && err == nil && cached != nil && fmt.Sprint(cached.Annotations) == fmt.Sprint(annotationsOf(set, requestsVolumes))
		}
		claims, err := r.client.CoreV1().PersistentVolumeClaims("ns").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range claims.Items {
			cached, err := replicated.Get[*corev1.PersistentVolumeClaim](r.claims, "ns/"+claims.Items[i].Name)
			same = same && err == nil && cached != nil && cached.Spec.Resources.Requests.Storage().Equal(*claims.Items[i].Spec.Resources.Requests.Storage())
		}
		return same, nil
	})
	if err != nil {
		t.Fatalf("the watch caches do not have what is stored: %v", err)
	}
}

// hasSame reports whether the only object in a cache has the generation and the status of another one.
func hasSame(informer cache.SharedIndexInformer, object *unstructured.Unstructured) bool {
	all := informer.GetStore().List()
	if len(all) != 1 {
		return false
	}
	cached, ok := all[0].(*unstructured.Unstructured)
	return ok && cached.GetGeneration() == object.GetGeneration() && fmt.Sprint(cached.Object["status"]) == fmt.Sprint(object.Object["status"])
}

// patches returns the number of patches of claims until now.
func (r *rig) patches() (sent int) {
	for _, action := range r.client.Actions() {
		if action.Matches("patch", "persistentvolumeclaims") {
			sent++
		}
	}
	return sent
}

func TestAPatchWithoutSuccessIsTriedAgainOnlyAfterABackoff(t *testing.T) {
	for name, answer := range map[string]error{"refused": exceeded(), "no answer": apierrors.NewServiceUnavailable("down")} {
		t.Run(name, func(t *testing.T) {
			r := newStillRig(t, newSnapshot(), "data=20Gi", answer)
			for range 10 { // at the same time, e.g. for events of a pod
				if again := r.once(t, 0); again != replicated.MinRetry {
					t.Fatalf("the next attempt is after %s, want %s", again, replicated.MinRetry)
				}
			}
			if sent, statuses := r.patches(), r.statuses; sent != 1 || statuses != 1 {
				t.Errorf("%d patches of claims and %d of the status, want 1 and 1", sent, statuses)
			}

			if again := r.once(t, replicated.MinRetry); again != 2*replicated.MinRetry || r.patches() != 2 {
				t.Errorf("%d patches, and the next attempt is after %s; want 2 and %s", r.patches(), again, 2*replicated.MinRetry)
			}
			// The delay doubles until its maximum.
			for at := 3 * replicated.MinRetry; at < time.Hour; {
				at += r.once(t, at)
			}
			if again := r.once(t, 2*time.Hour); again != replicated.MaxRetry {
				t.Errorf("after many attempts, the next one is after %s, want %s", again, replicated.MaxRetry)
			}
			r.patch = nil // the quota is raised
			r.once(t, 3*time.Hour)
			r.requested(t, "data-db-0", "20Gi")
		})
	}
}

func TestAnotherRequestIsTriedAtOnce(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "data=20Gi", exceeded())
	r.once(t, 0)
	object := must.Get(r.dynamic.Tracker().Get(objectResource(), "ns", "db"))(t)
	next := object.(*unstructured.Unstructured).DeepCopy()
	next.SetGeneration(6) // as after a change of the spec
	must.Do(t, r.dynamic.Tracker().Update(objectResource(), next, "ns"))
	if r.once(t, 0); r.patches() != 2 {
		t.Errorf("%d patches, want 2", r.patches())
	}
}

// TestAStatusThatIsCurrentIsNotWritten reconciles again and again when nothing changes.
func TestAStatusThatIsCurrentIsNotWritten(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "data=20Gi", nil)
	for range 3 {
		r.once(t, 0)
	}
	// The first status says that the change of the first replica is requested, and the second one that it waits for the driver.
	if r.statuses > 2 || r.patches() != 1 {
		t.Errorf("%d writes of the status and %d patches, want at most 2 and 1", r.statuses, r.patches())
	}
	before := r.statuses
	for range 3 {
		r.once(t, 0)
	}
	if r.statuses != before {
		t.Errorf("%d more writes of the status, want none", r.statuses-before)
	}
}

// TestALargeStatefulSetDoesNotBlockTheOthers uses more claims than one reconcile may patch.
func TestALargeStatefulSetDoesNotBlockTheOthers(t *testing.T) {
	const replicas = maxPatches + 5
	r := newStillRig(t, newParallel(replicas), "data=20Gi", nil)
	if again := r.once(t, 0); again != replicated.Debounce || r.patches() != maxPatches {
		t.Errorf("%d patches, and the next reconcile after %s; want %d and %s", r.patches(), again, maxPatches, replicated.Debounce)
	}
	if again := r.once(t, 0); again != 0 || r.patches() != replicas {
		t.Errorf("%d patches, and the next reconcile after %s; want %d and 0s", r.patches(), again, replicas)
	}
}

func newParallel(replicas int32) snapshot {
	s := newSnapshot()
	s.set.Spec.PodManagementPolicy, s.set.Spec.Replicas = "Parallel", new(replicas)
	for i := range replicas {
		pod, claim := s.pods["db-0"].DeepCopy(), s.claims["data-db-0"].DeepCopy()
		pod.Name, claim.Name = fmt.Sprintf("db-%d", i), fmt.Sprintf("data-db-%d", i)
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim.Name
		s.pods[pod.Name], s.claims[claim.Name] = pod, claim
	}
	return s
}
