// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
)

const (
	goldInPod = `{"containers":[
{"name":"main","qosResources":[
{"name":"k8s.io/rdt","class":"gold","source":"container"}]}]}`
	noneInPod = `{"containers":[
{"name":"main","qosResources":[
{"name":"k8s.io/rdt","class":""}]}]}`
)

func (r *rig) wantClasses(when, name, want string) {
	r.t.Helper()
	if got := r.pod(name).Annotations[classes.EffectiveKey]; got != want {
		r.t.Errorf("%s: the annotation is %q, want %q", when, got, want)
	}
}

// setClasses writes the annotation as another client does, and removes it if the value is "".
func (r *rig) setClasses(name, value string) {
	r.t.Helper()
	r.setAnnotation(name, classes.EffectiveKey, value)
}

// withClassesWritten starts a publisher, which writes the class gold of the pod web. The pod plain requests nothing.
func withClassesWritten(t *testing.T) *rig {
	t.Helper()
	plain := pod("plain")
	delete(plain.Annotations, "container.qos.noderesource.dev/main")
	r := cluster(t, pod("web"), plain)
	r.plugin.set(nil, "web=gold", "plain=")
	r.start(both())
	r.wantWrites("at first", applied)
	return r
}

func TestClassesAreWrittenTogetherWithTheCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := withClassesWritten(t)
		defer func() { r.stop() }()
		r.wantClasses("at first", "web", goldInPod)
		r.wantClasses("without a class", "plain", "")
		// A write leaves other annotations of the pod as they are.
		if other := r.pod("web").Annotations["other"]; other != "kept out" {
			t.Errorf("another annotation of the pod is %q", other)
		}

		// The condition and the annotation are still correct, so a restarted publisher writes nothing.
		r.stop()
		r.start(both())
		r.wantWrites("after a restart")
	})
}

func TestClassesThatAnotherClientChangesOrForgesAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := withClassesWritten(t)
		defer r.stop()

		for _, value := range []string{"forged", strings.Repeat("x", 1<<17), ""} {
			r.setClasses("web", value)
			bubble.Pass(time.Minute)
			r.wantWrites("after a change by somebody else", applied)
			r.wantClasses("after a change by somebody else", "web", goldInPod)
		}
		r.setClasses("plain", goldInPod)
		bubble.Pass(time.Minute)
		r.wantWrites("after a forged class", applied)
		r.wantClasses("after a forged class", "plain", noneInPod)
	})
}

// TestRemovedAnnotationsAreWrittenAgainOnceAMinute removes the annotation once a second, as a user can in a namespace
// without the policies.
func TestRemovedAnnotationsAreWrittenAgainOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.plugin.set(nil, "web=gold")
		r.start(both())
		defer r.stop()
		bubble.Pass(time.Hour)

		r.setClasses("web", "")
		bubble.Pass(time.Second)
		r.wantWrites("after an hour without a change", applied)
		writes := 0
		for range 60 {
			r.setClasses("web", "")
			bubble.Pass(time.Second)
			writes += len(r.writes())
		}
		if writes != 1 {
			t.Errorf("%d writes in a minute with 60 removals, want one", writes)
		}

		r.setClasses("web", "")
		r.plugin.set(nil, "web=silver")
		bubble.Pass(time.Second)
		r.wantClasses("another class is written at once", "web", strings.ReplaceAll(goldInPod, "gold", "silver"))
		r.setClasses("web", "")
		bubble.Pass(time.Minute)
		r.wantClasses("within a minute", "web", strings.ReplaceAll(goldInPod, "gold", "silver"))
	})
}

// TestTheConditionIsWrittenAlthoughTheAnnotationIsRefused refuses the annotation, as the API server does if all
// annotations of a pod together become too long, or as a policy or a webhook may. If a webhook gives no code, the API
// server answers 400 without a reason.
func TestTheConditionIsWrittenAlthoughTheAnnotationIsRefused(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	for name, answer := range map[string]error{
		"too long":                            apierrors.NewInvalid(kind, "web", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1<<18)}),
		"by a policy":                         apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", nil),
		"by a webhook":                        &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "denied the request"}},
		"by a webhook with a code of its own": &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 451, Message: "denied the request"}},
		"by a webhook that says not found": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404, Message: "denied the request",
		}},
		"by a webhook that says conflict": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: 409, Message: "denied the request",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := cluster(t, pod("web"))
				r.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
					patch := string(action.(clienttesting.PatchAction).GetPatch())
					return strings.Contains(patch, `\"class\":\"gold\"`), nil, answer
				})
				r.plugin.set(nil, "web=gold")
				r.start(both())
				defer r.stop()
				bubble.Pass(time.Hour)
				r.wantCondition("without the annotation", "web", "True Assigned: main: k8s.io/rdt gold (container)")
				r.wantClasses("without the annotation", "web", "")
				r.wantWrites("the annotation is tried once", applied, applied)

				r.plugin.set(nil, "web=silver")
				bubble.Pass(time.Hour)
				r.wantClasses("after another change", "web", strings.ReplaceAll(goldInPod, "gold", "silver"))
			})
		})
	}
}

// TestTheAnnotationIsRemovedIfItsChangeIsRefused changes only the field `limited` of a volume's class. The annotation has this field, but
// the condition does not. If the new annotation is refused, the old one is removed, because it is out of date.
func TestTheAnnotationIsRemovedIfItsChangeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster(t, pod("web"))
		r.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch := string(action.(clienttesting.PatchAction).GetPatch())
			return strings.Contains(patch, "another program"), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", nil)
		})
		limited := func(by string) {
			r.plugin.set(nil, "web=gold")
			state, _ := r.plugin.Get()
			state.Assignments.Pods[0].Containers[0].Volumes = []*qosv1alpha1.VolumeAssignments{{
				Path: "/data", QosResources: []*qosv1alpha1.Assignment{{Name: "qos.noderesource.dev/volume-io", Class: "silver", Limited: by}},
			}}
			r.plugin.Set(state)
		}
		limited("")
		r.start(both())
		defer r.stop()
		r.wantWrites("at first", applied)

		limited("another program")
		bubble.Pass(time.Hour)
		r.wantClasses("after a refused change", "web", "")
		// The first request is refused. The second one has no annotation, and so removes the old one.
		r.wantWrites("after a refused change", applied, applied)
	})
}
