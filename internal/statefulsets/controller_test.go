// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// rig is a controller that runs against fakes of the API.
type rig struct {
	*controller
	client   *fake.Clientset
	dynamic  *dynamicfake.FakeDynamicClient
	recorder *events.FakeRecorder

	mu       sync.Mutex // guards all below
	status   nodeqosv1alpha1.StatefulSetVolumesStatus
	statuses int      // the number of writes of the status
	patch    error    // the answer of the API server to patches of claims
	applied  []string // the patches of the object, also those that were refused
	apply    error    // the answer of the API server to these patches
}

// newRig runs a controller until the test ends. The object with the request is that of the StatefulSet of newSnapshot; "" is no object.
func newRig(t *testing.T, s snapshot, text string, patch error) *rig {
	t.Helper()
	r := newStillRig(t, s, text, patch)
	r.run(t, func(ctx context.Context) error { r.Run(ctx); return nil })
	return r
}

// newStillRig is like newRig, but the test calls `reconcile`.
func newStillRig(t *testing.T, s snapshot, text string, patch error) *rig {
	t.Helper()
	objects := []runtime.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "grows"}, AllowVolumeExpansion: new(true)},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}},
	}
	if s.set != nil {
		objects = append(objects, s.set)
	}
	for _, pod := range s.pods {
		objects = append(objects, pod)
	}
	for _, claim := range s.claims {
		objects = append(objects, claim)
	}
	r := &rig{client: fake.NewClientset(objects...), recorder: events.NewFakeRecorder(100), patch: patch}
	r.client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.patch != nil, nil, r.patch
	})

	object := nodeqosv1alpha1.StatefulSetVolumes{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", Generation: 5}, Spec: request(t, text)}
	object.APIVersion, object.Kind = nodeqosv1alpha1.GroupVersion.String(), nodeqosv1alpha1.StatefulSetVolumesKind
	content := must.Get(runtime.DefaultUnstructuredConverter.ToUnstructured(&object))(t)
	kinds := map[schema.GroupVersionResource]string{objectResource(): nodeqosv1alpha1.StatefulSetVolumesKind + "List"}
	r.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	stored := r.dynamic.Resource(objectResource()).Namespace("ns")
	if text != "" {
		must.Get(stored.Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}))(t)
	}
	r.dynamic.PrependReactor("patch", nodeqosv1alpha1.StatefulSetVolumesPlural, r.keep)

	r.controller = must.Get(newController(r.client, r.dynamic, r.recorder, slog.New(slog.DiscardHandler)))(t)
	r.run(t, func(ctx context.Context) error {
		group := &errgroup.Group{}
		r.Start(ctx, group)
		return group.Wait()
	})
	return r
}

// run runs a function until the test ends.
func (r *rig) run(t *testing.T, function func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	group := &errgroup.Group{}
	group.Go(func() error { return function(ctx) })
	t.Cleanup(func() {
		cancel()
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// keep stores the status or the spec of a patch, as the API server does.
func (r *rig) keep(action clienttesting.Action) (bool, runtime.Object, error) {
	patch, ok := action.(clienttesting.PatchAction)
	if !ok {
		return true, nil, fmt.Errorf("unexpected action %v", action)
	}
	after := &unstructured.Unstructured{}
	if err := json.Unmarshal(patch.GetPatch(), after); err != nil {
		return true, nil, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if patch.GetSubresource() == "" {
		r.applied = append(r.applied, string(patch.GetPatch()))
		if r.apply != nil {
			return true, nil, r.apply
		}
		after.SetGeneration(6)
	} else {
		var object nodeqosv1alpha1.StatefulSetVolumes
		if err := json.Unmarshal(patch.GetPatch(), &object); err != nil {
			return true, nil, err
		}
		r.status = object.Status
		r.statuses++
	}
	stored, err := r.dynamic.Tracker().Get(objectResource(), "ns", patch.GetName())
	if err != nil {
		return true, after, r.dynamic.Tracker().Create(objectResource(), after, "ns")
	}
	if patch.GetSubresource() != "" {
		status := after.Object["status"]
		after = stored.(*unstructured.Unstructured).DeepCopy()
		after.Object["status"] = status
	}
	return true, after, r.dynamic.Tracker().Update(objectResource(), after, "ns")
}

// awaits waits until the conditions are as wanted: "Ready REASON" or "Stalled REASON", or "REASON" if neither is True. It returns the message.
func (r *rig) awaits(t *testing.T, want string) (message string) {
	t.Helper()
	got := ""
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, kind := range []string{nodeqosv1alpha1.ConditionVolumesReady, nodeqosv1alpha1.ConditionVolumesStalled} {
			c := meta.FindStatusCondition(r.status.Conditions, kind)
			switch {
			case c == nil:
				return false, nil
			case c.Status == metav1.ConditionTrue:
				got, message = kind+" "+c.Reason, c.Message
				return got == want, nil
			}
			got, message = c.Reason, c.Message
		}
		return got == want, nil
	})
	if err != nil {
		t.Fatalf("the conditions are %q (%s), want %q", got, message, want)
	}
	return message
}

// change changes a claim, as the driver and the kubelet do.
func (r *rig) change(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) {
	t.Helper()
	claims := r.client.CoreV1().PersistentVolumeClaims("ns")
	claim := must.Get(claims.Get(t.Context(), name, metav1.GetOptions{}))(t)
	change(claim)
	must.Get(claims.Update(t.Context(), claim, metav1.UpdateOptions{}))(t)
}

// requested waits until a claim requests a size.
func (r *rig) requested(t *testing.T, name, size string) {
	t.Helper()
	got := ""
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		claim, err := r.client.CoreV1().PersistentVolumeClaims("ns").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		request := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		got = request.String()
		return got == size, nil
	})
	if err != nil {
		t.Fatalf("claim %s requests %s, want %s: %v", name, got, size, err)
	}
}

// events returns the events until now.
func (r *rig) events() (all []string) {
	for range len(r.recorder.Events) {
		all = append(all, <-r.recorder.Events)
	}
	return all
}

// annotate replaces the annotations of the StatefulSet.
func (r *rig) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	sets := r.client.AppsV1().StatefulSets("ns")
	set := must.Get(sets.Get(t.Context(), "db", metav1.GetOptions{}))(t)
	set.Annotations = annotations
	must.Get(sets.Update(t.Context(), set, metav1.UpdateOptions{}))(t)
}

func (r *rig) templates() []nodeqosv1alpha1.VolumeClaimTemplateStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status.VolumeClaimTemplates
}

func TestReplicasGrowOneAfterAnother(t *testing.T) {
	r := newRig(t, newSnapshot(), "data=20Gi", nil)
	for i := range 3 {
		name := fmt.Sprintf("data-db-%d", i)
		r.requested(t, name, "20Gi")
		if i < 2 {
			next := fmt.Sprintf("data-db-%d", i+1)
			r.requested(t, next, "10Gi")
			if message := r.awaits(t, "Waiting"); !strings.Contains(message, "of 3 replicas are ready") {
				t.Errorf("the message is %q", message)
			}
		}
		r.change(t, name, has("20Gi"))
	}

	r.awaits(t, "Ready AllReplicasReady")
	// The object of newRig has the generation 5.
	want := []nodeqosv1alpha1.VolumeClaimTemplateStatus{{TemplateName: "data", ReadyReplicas: 3, FinishedReconciliationGeneration: 5}}
	if diff := cmp.Diff(want, r.templates()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	r.requested(t, "data-db-3", "10Gi") // db-3 is no replica any more
	if got := r.events(); len(got) > 0 {
		t.Errorf("events: %q", got)
	}
}

// exceeded is the refusal of a patch because of a quota.
func exceeded() error {
	return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), "data-db-0", errors.New("exceeded quota: small"))
}

func TestARefusalOfTheAPIServerIsReported(t *testing.T) {
	r := newRig(t, newSnapshot(), "data=20Gi", exceeded())
	message := r.awaits(t, "Stalled PatchRefused")
	if !strings.Contains(message, "0 of 3 replicas are ready; claim data-db-0: ") || !strings.Contains(message, "exceeded quota: small") {
		t.Errorf("the message is %q", message)
	}
	if got := r.events(); len(got) != 1 || !strings.Contains(got[0], "Warning FailedToPatchPVC claim data-db-0: ") || !strings.Contains(got[0], "exceeded quota: small") {
		t.Errorf("events: %q", got)
	}

	r.mu.Lock()
	r.patch = nil // the quota is raised
	r.mu.Unlock()
	r.requested(t, "data-db-0", "20Gi") // by the retry
}

func TestAFailureOfTheDriverIsReportedOnce(t *testing.T) {
	r := newRig(t, newSnapshot(), "data=20Gi", nil)
	for range 2 { // the external-resizer removes the condition while it tries again
		r.requested(t, "data-db-0", "20Gi")
		r.change(t, "data-db-0", failsAt("20Gi"))
		r.awaits(t, "Stalled VolumeFailed")
		r.change(t, "data-db-0", func(c *corev1.PersistentVolumeClaim) { c.Status.Conditions = nil })
		r.awaits(t, "Waiting")
	}
	if got := r.events(); len(got) != 1 || !strings.Contains(got[0], "Warning VolumeResizeFailed claim data-db-0: the driver cannot expand the volume: pool is full") {
		t.Errorf("events: %q", got)
	}
}

func TestAChangeOfAStorageClassIsNoticed(t *testing.T) {
	s := newSnapshot()
	s.claims["data-db-0"].Spec.StorageClassName = new("fixed")
	r := newRig(t, s, "data=20Gi", nil)
	r.awaits(t, "Stalled ExpansionNotAllowed")
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed"}, AllowVolumeExpansion: new(true)}
	must.Get(r.client.StorageV1().StorageClasses().Update(t.Context(), class, metav1.UpdateOptions{}))(t)
	r.requested(t, "data-db-0", "20Gi")
}

func TestAnObjectMayBeCreatedBeforeItsStatefulSet(t *testing.T) {
	s := newSnapshot()
	set := s.set
	s.set = nil
	r := newRig(t, s, "data=20Gi", nil)
	r.awaits(t, "NoStatefulSet")
	if got := r.templates(); len(got) != 1 || got[0].FinishedReconciliationGeneration != 0 {
		t.Errorf("status: %+v", got)
	}
	must.Get(r.client.AppsV1().StatefulSets("ns").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	r.requested(t, "data-db-0", "20Gi")
}

// TestASizeWithAnExponentIsRefused uses an object from the time before the CRD had a pattern for sizes. The controller neither parses
// nor compares the size, and changes the other template.
func TestASizeWithAnExponentIsRefused(t *testing.T) {
	for _, size := range []string{"1e1000000000", "12345678901234567890e1000000000", "1e9"} {
		content := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"volumeClaimTemplates": []any{
			map[string]any{"name": "data", "storage": size, "volumeAttributesClassName": "gold"}, map[string]any{"name": "log", "storage": "20Gi"},
		}}}}
		object := must.Get(readObject(content))(t)
		s := newSnapshot()
		s.set.Spec.Replicas = new(int32(1))
		steps := plan(s, object.Spec)
		want := []string{`invalid size: the storage of template "data" must be a size without an exponent, e.g. 100Gi`, "log-db-0 patch 20Gi"}
		if diff := cmp.Diff(want, lines(steps)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", size, diff)
		}
		status := statusOf(object, outcome{steps: steps, replicas: 1})
		stalled := meta.FindStatusCondition(status.Conditions, nodeqosv1alpha1.ConditionVolumesStalled)
		if stalled.Status != metav1.ConditionTrue || stalled.Reason != nodeqosv1alpha1.ReasonInvalidSize {
			t.Errorf("%s: the condition is %+v", size, stalled)
		}
	}
}

// TestThePatchNamesTheClaimThatWasRead checks the UID and the resourceVersion in the patch. With them, the API server refuses the patch if
// the claim has changed in the meantime, so that a patch never makes a claim smaller.
func TestThePatchNamesTheClaimThatWasRead(t *testing.T) {
	s := newSnapshot()
	body, err := plan(s, request(t, "data=20Gi,gold"))[0].patch.body()
	const want = `{"metadata":{"resourceVersion":"7","uid":"claim"},"spec":{"resources":{"requests":{"storage":"20Gi"}},"volumeAttributesClassName":"gold"}}`
	if string(body) != want || err != nil {
		t.Errorf("the patch is %s, %v; want %s", body, err, want)
	}
}
