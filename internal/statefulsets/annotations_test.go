// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/replicated"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestAnnotationsOfAStatefulSetBecomeAnObjectThatKeepsTheLatestRequest(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "", nil)
	r.once(t, 0)
	r.annotate(t, map[string]string{
		"storage.qos.noderesource.dev/data": "20Gi", "volume-attributes-class.qos.noderesource.dev/data": "gold",
		"volume-attributes-class.qos.noderesource.dev/log": "gold", "other": "x",
	})
	for range 3 { // the first time writes the object, and the others find no change
		r.once(t, 0)
	}
	want := []string{`{"apiVersion":"qos.noderesource.dev/v1alpha1","kind":"StatefulSetVolumes","metadata":{"annotations":` +
		`{"qos.noderesource.dev/applied-annotations":"[{\"name\":\"data\",\"storage\":\"20Gi\",\"volumeAttributesClassName\":\"gold\"},` +
		`{\"name\":\"log\",\"volumeAttributesClassName\":\"gold\"}]","qos.noderesource.dev/created-for-annotations":"true"},"name":"db","namespace":"ns","ownerReferences":` +
		`[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"set"}]},"spec":{"volumeClaimTemplates":` +
		`[{"name":"data","storage":"20Gi","volumeAttributesClassName":"gold"},{"name":"log","volumeAttributesClassName":"gold"}]}}`}
	if diff := cmp.Diff(want, r.applied); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	r.requested(t, "data-db-0", "20Gi")

	r.annotate(t, map[string]string{"storage.qos.noderesource.dev/data": "30Gi"})
	r.once(t, 0)
	r.annotate(t, nil) // this is no request
	for range 3 {
		r.once(t, 0)
	}
	if len(r.applied) != 2 || !strings.Contains(r.applied[1], `"spec":{"volumeClaimTemplates":[{"name":"data","storage":"30Gi"}]}`) ||
		!strings.Contains(r.applied[1], "ownerReferences") {
		t.Errorf("the objects are %q, want a second one with 30Gi and an owner", r.applied)
	}
}

// TestAnObjectOfAUserOutlivesTheStatefulSet uses an object that the controller changes and has not created. Without an owner, the garbage
// collector does not delete it.
func TestAnObjectOfAUserOutlivesTheStatefulSet(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "data=20Gi", nil)
	r.annotate(t, map[string]string{"storage.qos.noderesource.dev/data": "30Gi"})
	r.once(t, 0)
	if len(r.applied) != 1 || strings.Contains(r.applied[0], "ownerReferences") {
		t.Errorf("the objects are %q, want one without an owner", r.applied)
	}
}

func TestARefusedAnnotationIsReportedOnce(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "", nil)
	r.apply = apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSetVolumes"}, "db", nil)
	r.annotate(t, map[string]string{"storage.qos.noderesource.dev/data": "a lot"})
	for range 3 {
		if again := r.once(t, 0); again != replicated.MinRetry {
			t.Errorf("the next attempt is after %s, want %s", again, replicated.MinRetry)
		}
	}
	if got := r.events(); len(got) != 1 || !strings.Contains(got[0], "Warning FailedToPatchPVC the annotations of the StatefulSet have no effect: the API server refuses") {
		t.Errorf("events: %q", got)
	}
	r.once(t, replicated.MinRetry)
	if got := r.events(); len(got) != 0 || len(r.applied) != 2 {
		t.Errorf("the events are %q, want none; the objects are %q, want two", got, r.applied)
	}
}

func TestAChangedAnnotationIsTriedAtOnceAfterARefusal(t *testing.T) {
	r := newStillRig(t, newSnapshot(), "", nil)
	r.apply = apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSetVolumes"}, "db", nil)
	r.annotate(t, map[string]string{"storage.qos.noderesource.dev/data": "a lot"})
	r.once(t, 0) // the API server refuses the object

	// The changed annotation is tried at the same time, and gets no answer.
	r.apply = errors.New("no answer")
	r.annotate(t, map[string]string{"storage.qos.noderesource.dev/data": "20Gi"})
	if again := r.once(t, 0); again != replicated.MinRetry || len(r.applied) != 2 {
		t.Errorf("the next attempt is after %s, want %s; the objects are %q, want two", again, replicated.MinRetry, r.applied)
	}

	// Without an answer, it waits for the first delay.
	r.apply = nil
	if r.once(t, replicated.MinRetry); len(r.applied) != 3 {
		t.Errorf("the objects are %q, want three", r.applied)
	}
}

// orphaned returns a controller with the object "data=20Gi", which has these annotations. The garbage collector has removed its owner.
func orphaned(t *testing.T, annotations map[string]string) *rig {
	t.Helper()
	r := newStillRig(t, newSnapshot(), "data=20Gi", nil)
	r.once(t, 0) // the caches have the object
	object := must.Get(r.controller.dynamic.Resource(objectResource()).Namespace("ns").Get(t.Context(), "db", metav1.GetOptions{}))(t)
	object.SetUID("object")
	object.SetGeneration(object.GetGeneration() + 1) // `synced` waits for it
	object.SetAnnotations(annotations)
	must.Do(t, r.dynamic.Tracker().Update(objectResource(), object, "ns"))
	return r
}

// created has the annotation of objects that the controller has created.
func created() map[string]string { return map[string]string{nodeqosv1alpha1.CreatedAnnotation: "true"} }

// TestAnObjectGetsTheNextStatefulSetAsItsOwner: the former StatefulSet was deleted and its dependents were orphaned. So the object has no
// owner until the controller adds the present StatefulSet. An object that a user has created gets no owner.
func TestAnObjectGetsTheNextStatefulSetAsItsOwner(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"created by the controller": {created(), []string{
			`{"apiVersion":"qos.noderesource.dev/v1alpha1","kind":"StatefulSetVolumes","metadata":{"name":"db","namespace":"ns",` +
				`"ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"set"}],"uid":"object"}}`,
		}},
		"created by a user": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := orphaned(t, test.annotations)
			r.once(t, 0)
			if diff := cmp.Diff(test.want, r.applied); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnObjectDoesNotGetADeletedStatefulSetAsItsOwner uses a watch cache that is older than the deletion of the StatefulSet.
func TestAnObjectDoesNotGetADeletedStatefulSetAsItsOwner(t *testing.T) {
	for name, change := range map[string]func(set *appsv1.StatefulSet) error{
		"being deleted": func(set *appsv1.StatefulSet) error { set.DeletionTimestamp = new(metav1.Now()); return nil },
		"deleted":       func(*appsv1.StatefulSet) error { return apierrors.NewNotFound(schema.GroupResource{}, "db") },
		"replaced":      func(set *appsv1.StatefulSet) error { set.UID = "next"; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := orphaned(t, created())
			r.client.PrependReactor("get", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
				live := newSnapshot().set
				err := change(live)
				return true, live, err
			})
			if again := r.once(t, 0); again != 0 || len(r.applied) != 0 {
				t.Errorf("the next attempt is after %s, and the objects are %q; want neither", again, r.applied)
			}
		})
	}
}

// TestAFailureToReadTheStatefulSetIsRetried lets the API server not answer before the owner is written.
func TestAFailureToReadTheStatefulSetIsRetried(t *testing.T) {
	r := orphaned(t, created())
	var failure error = apierrors.NewInternalError(errors.New("no answer"))
	r.client.PrependReactor("get", "statefulsets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failure != nil, nil, failure
	})
	if again := r.once(t, 0); again != replicated.MinRetry || len(r.applied) != 0 {
		t.Errorf("the next attempt is after %s, want %s; the objects are %q, want none", again, replicated.MinRetry, r.applied)
	}
	failure = nil
	if r.once(t, replicated.MinRetry); len(r.applied) != 1 {
		t.Errorf("the objects are %q, want one", r.applied)
	}
}

// TestAnOwnerThatCannotBeWrittenIsReported: the event says what the missing owner means. A conflict means that the object
// was replaced meanwhile, which needs neither an event nor another attempt.
func TestAnOwnerThatCannotBeWrittenIsReported(t *testing.T) {
	objects := schema.GroupResource{Resource: nodeqosv1alpha1.StatefulSetVolumesPlural}
	for name, test := range map[string]struct {
		answer error
		again  time.Duration
		events int
	}{
		"refused":  {apierrors.NewForbidden(objects, "db", errors.New("no")), replicated.MinRetry, 1},
		"conflict": {apierrors.NewConflict(objects, "db", errors.New("the UID in the precondition is another one")), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := orphaned(t, created())
			r.apply = test.answer
			again := r.once(t, 0)
			got := r.events()
			if again != test.again || len(r.applied) != 1 || len(got) != test.events {
				t.Errorf("the next attempt is after %s, want %s; the objects are %q; the events are %q", again, test.again, r.applied, got)
			}
			for _, event := range got {
				if !strings.Contains(event, "the StatefulSetVolumes object is not deleted together with the StatefulSet: the API server refuses") {
					t.Errorf("event: %s", event)
				}
			}
		})
	}
}

func TestAChangeOfTheOwnersOfAnObjectIsNoticedAndAWriteOfItsStatusIsNot(t *testing.T) {
	before := &unstructured.Unstructured{Object: map[string]any{}}
	before.SetOwnerReferences([]metav1.OwnerReference{{UID: "set"}})
	after := before.DeepCopy()
	after.Object["status"] = "x"
	if !unchanged(before, after) {
		t.Error("a write of the status counts as a change")
	}
	after.SetOwnerReferences(nil)
	if unchanged(before, after) {
		t.Error("a change of the owners does not count as a change")
	}
}
