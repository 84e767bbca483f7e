// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package claimdefaults

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// rig is a controller that runs against a fake of the API.
type rig struct {
	*controller
	client   *fake.Clientset
	recorder *events.FakeRecorder

	mu      sync.Mutex // guards the fields below
	refusal error      // the answer of the API server to patches of claims
	patches []string
}

func newRig(t *testing.T, refusal error, objects ...runtime.Object) *rig {
	t.Helper()
	r := newStillRig(t, refusal, objects...)
	r.run(t, r.Run)
	return r
}

// newStillRig is like newRig, but the test calls `once`.
func newStillRig(t *testing.T, refusal error, objects ...runtime.Object) *rig {
	t.Helper()
	r := &rig{client: fake.NewClientset(objects...), recorder: events.NewFakeRecorder(100), refusal: refusal}
	r.client.PrependReactor("patch", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if patch, ok := action.(clienttesting.PatchAction); ok {
			r.patches = append(r.patches, string(patch.GetPatch()))
		}
		return r.refusal != nil, nil, r.refusal
	})
	r.controller = must.Get(newController(r.client, r.recorder, []string{"d"}, slog.New(slog.DiscardHandler)))(t)
	r.run(t, func(ctx context.Context) {
		group := &errgroup.Group{}
		r.Start(ctx, group)
		_ = group.Wait()
	})
	if !cache.WaitForCacheSync(t.Context().Done(), r.claims.HasSynced, r.volumes.HasSynced, r.storageClasses.HasSynced, r.classes.HasSynced) {
		t.Fatal("the informers have not listed the objects")
	}
	return r
}

// once reconciles the claim of newClaim, at a time after the start of the test. It returns the time until the next call.
func (r *rig) once(t *testing.T, at time.Duration) (again time.Duration) {
	t.Helper()
	r.now = func() time.Time { return time.Unix(1_000_000, 0).Add(at) }
	again, err := r.reconcile(t.Context(), "ns/data")
	if err != nil {
		t.Logf("reconcile: %v", err)
	}
	return again
}

// exceeded is the refusal of a patch because of a quota.
func exceeded() error {
	return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", context.DeadlineExceeded)
}

// run runs a function until the test ends.
func (r *rig) run(t *testing.T, function func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		function(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// has waits until the claim of newClaim has a class.
func (r *rig) has(t *testing.T, want string) {
	t.Helper()
	seen := ""
	condition := func(ctx context.Context) (bool, error) {
		claim, err := r.client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, "data", metav1.GetOptions{})
		if err != nil || claim.Spec.VolumeAttributesClassName == nil {
			return false, err
		}
		seen = *claim.Spec.VolumeAttributesClassName
		return seen == want, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, condition); err != nil {
		t.Fatalf("the class is %q, want %q: %v", seen, want, err)
	}
}

func TestADefaultThatIsSetLaterIsWrittenToClaims(t *testing.T) {
	r := newRig(t, nil, newClaim(), newVolume(), newStorageClass("", ""), newClass("silver", "d", "500"))
	must.Get(r.client.StorageV1().StorageClasses().Update(t.Context(), newStorageClass("silver", ""), metav1.UpdateOptions{}))(t)
	r.has(t, "silver")
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := `{"metadata":{"resourceVersion":"1","uid":"u"},"spec":{"volumeAttributesClassName":"silver"}}`; len(r.patches) != 1 || r.patches[0] != want {
		t.Errorf("patches %q, want only %s", r.patches, want)
	}
}

func TestAClassThatIsCreatedLaterIsWrittenToClaims(t *testing.T) {
	r := newRig(t, nil, newClaim(), newVolume(), newStorageClass("silver", ""))
	if got := <-r.recorder.Events; !strings.HasPrefix(got, "Warning "+EventNotSet+" StorageClass \"disks\" names the default") {
		t.Errorf("event %q", got)
	}
	must.Get(r.client.StorageV1().VolumeAttributesClasses().Create(t.Context(), newClass("silver", "d", "500"), metav1.CreateOptions{}))(t)
	r.has(t, "silver")
}

func TestARefusedClassIsReportedOnceAndTriedAgain(t *testing.T) {
	r := newRig(t, exceeded(), newClaim(), newVolume(), newStorageClass("silver", ""), newClass("silver", "d", "500"))
	if got := <-r.recorder.Events; !strings.Contains(got, `the API server refuses VolumeAttributesClass "silver": `) {
		t.Errorf("event %q", got)
	}

	more := func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.patches) > 1, nil
	}
	must.Do(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, more))
	r.mu.Lock()
	r.refusal = nil
	r.mu.Unlock()
	r.has(t, "silver")
	select {
	case got := <-r.recorder.Events:
		t.Errorf("a second event: %q", got)
	default:
	}
}

func TestAFailedPatchIsTriedAgainOnlyAfterABackoff(t *testing.T) {
	for name, answer := range map[string]error{"refused": exceeded(), "no answer": apierrors.NewServiceUnavailable("down")} {
		t.Run(name, func(t *testing.T) {
			r := newStillRig(t, answer, newClaim(), newVolume(), newStorageClass("silver", ""), newClass("silver", "d", "500"))
			for range 10 { // at the same time, e.g. for events of the claim
				if again := r.once(t, 0); again != replicated.MinRetry || len(r.patches) != 1 {
					t.Fatalf("%d patches, and the next one after %s; want 1 and %s", len(r.patches), again, replicated.MinRetry)
				}
			}
			if again := r.once(t, replicated.MinRetry); again != 2*replicated.MinRetry || len(r.patches) != 2 {
				t.Errorf("%d patches, and the next one after %s; want 2 and %s", len(r.patches), again, 2*replicated.MinRetry)
			}
			r.refusal = nil // the API server accepts patches again
			if again := r.once(t, time.Hour); again != 0 || len(r.patches) != 3 {
				t.Errorf("%d patches, and the next one after %s; want 3 and 0s", len(r.patches), again)
			}
		})
	}
}

func TestARefusalIsNotReportedAgainAfterAnOutage(t *testing.T) {
	r := newStillRig(t, nil, newClaim(), newVolume(), newStorageClass("silver", ""), newClass("silver", "d", "500"))
	for hour, answer := range []error{exceeded(), apierrors.NewServiceUnavailable("down"), exceeded()} {
		r.refusal = answer
		for range 2 { // the second call sends no patch, because the next attempt is not due yet
			r.once(t, time.Duration(hour)*time.Hour)
		}
	}

	// Each hour has a patch, and only the first refusal has an event.
	if len(r.recorder.Events) != 1 || len(r.patches) != 3 {
		t.Errorf("%d events and %d patches, want 1 and 3", len(r.recorder.Events), len(r.patches))
	}
}
