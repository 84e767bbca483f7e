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
	"k8s.io/client-go/tools/events"
)

// rig is a controller that runs against a fake of the API.
type rig struct {
	client   *fake.Clientset
	recorder *events.FakeRecorder

	mu      sync.Mutex // guards the fields below
	refusal error      // the answer of the API server to patches of claims
	patches []string
}

func newRig(t *testing.T, refusal error, objects ...runtime.Object) *rig {
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
	c, err := newController(r.client, r.recorder, []string{"d"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	group := &errgroup.Group{}
	c.Start(ctx, group)
	group.Go(func() error { c.Run(ctx); return nil })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
	return r
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
	if _, err := r.client.StorageV1().StorageClasses().Update(t.Context(), newStorageClass("silver", ""), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
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
	if _, err := r.client.StorageV1().VolumeAttributesClasses().Create(t.Context(), newClass("silver", "d", "500"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.has(t, "silver")
}

func TestARefusedClassIsReportedOnceAndTriedAgain(t *testing.T) {
	exceeded := apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data", context.DeadlineExceeded)
	r := newRig(t, exceeded, newClaim(), newVolume(), newStorageClass("silver", ""), newClass("silver", "d", "500"))
	if got := <-r.recorder.Events; !strings.Contains(got, `the API server refuses VolumeAttributesClass "silver": `) {
		t.Errorf("event %q", got)
	}

	more := func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.patches) > 1, nil
	}
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, more); err != nil {
		t.Fatal(err)
	}
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
