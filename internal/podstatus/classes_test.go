// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	goldInPod = `{"containers":[
{"name":"main","qosResources":[
{"name":"k8s.io/rdt","class":"gold","source":"container"}]}]}`
	noneInPod = `{"containers":[
{"name":"main","qosResources":[
{"name":"k8s.io/rdt","class":""}]}]}`
)

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	pod, err := r.client.CoreV1().Pods("default").Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return pod
}

func (r *rig) wantClasses(when, name, want string) {
	r.t.Helper()
	if got := r.pod(name).Annotations[classes.EffectiveKey]; got != want {
		r.t.Errorf("%s: the annotation is %q, want %q", when, got, want)
	}
}

// setClasses writes the annotation as another client does, and removes it if the value is "".
func (r *rig) setClasses(name, value string) {
	r.t.Helper()
	pod := r.pod(name)
	pod.Annotations[classes.EffectiveKey] = value
	if value == "" {
		delete(pod.Annotations, classes.EffectiveKey)
	}
	if _, err := r.client.CoreV1().Pods("default").Update(r.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.client.ClearActions()
	r.pass(5 * time.Second)
}

func TestClassesAreWrittenTogetherWithTheCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := pod("plain")
		delete(plain.Annotations, "container.qos.noderesource.dev/main")
		r := cluster(t, pod("web"), plain)
		r.plugin.set(nil, "web=gold", "plain=")
		r.start(both())
		defer func() { r.stop() }()
		r.wantWrites("at first", applied)
		r.wantClasses("at first", "web", goldInPod)
		r.wantClasses("without a class", "plain", "")
		if other := r.pod("web").Annotations["other"]; other != "kept out" {
			t.Errorf("another annotation of the pod is %q", other)
		}

		for _, value := range []string{"forged", strings.Repeat("x", 1<<17), ""} {
			r.setClasses("web", value)
			r.wantWrites("after a change by somebody else", applied)
			r.wantClasses("after a change by somebody else", "web", goldInPod)
		}
		r.setClasses("plain", goldInPod)
		r.wantWrites("after a forged class", applied)
		r.wantClasses("after a forged class", "plain", noneInPod)

		r.stop()
		r.start(both())
		r.wantWrites("after a restart")
	})
}

// TestTheConditionIsWrittenAlsoWithoutTheClasses refuses the annotation, as the API server does if all annotations of a pod together
// become too long, or as a policy may.
func TestTheConditionIsWrittenAlsoWithoutTheClasses(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	for name, answer := range map[string]error{
		"too long":    apierrors.NewInvalid(kind, "web", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1<<18)}),
		"by a policy": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", nil),
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
				r.pass(time.Hour)
				r.wantCondition("without the annotation", "web", "True Assigned: main: k8s.io/rdt gold (container)")
				r.wantClasses("without the annotation", "web", "")
				r.wantWrites("the annotation is tried once", applied, applied)

				r.plugin.set(nil, "web=silver")
				r.pass(time.Hour)
				r.wantClasses("after another change", "web", strings.ReplaceAll(goldInPod, "gold", "silver"))
			})
		})
	}
}
