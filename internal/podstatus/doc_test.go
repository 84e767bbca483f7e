// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOfAPodNothingIsKeptThatIsNotNeeded(t *testing.T) {
	one := resource.MustParse("1")
	kept := podWith("main")
	kept.Annotations = map[string]string{"qos.noderesource.dev/pod": "rdt=gold", corev1.MirrorPodAnnotationKey: "hash"}
	kept.ResourceVersion = "7"
	kept.Spec.NodeName = "worker"
	kept.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"qos.noderesource.dev/rdt.gold": one}
	kept.Status.Phase = corev1.PodRunning
	kept.Status.Conditions = []corev1.PodCondition{{Type: ConditionType, Status: corev1.ConditionTrue}}
	kept.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}

	whole := kept.DeepCopy()
	whole.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
	whole.Labels = map[string]string{"app": "web"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	c := &whole.Spec.Containers[0]
	c.Image, c.Env, c.Resources.Limits["cpu"], c.Resources.Requests = "example", []corev1.EnvVar{{Name: "PASSWORD"}}, one, corev1.ResourceList{"cpu": one}
	whole.Status.Conditions = append(whole.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady})
	whole.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Now()
	whole.Status.ContainerStatuses[0].ImageID = "sha256"

	got, err := strip(whole)
	if err != nil {
		t.Fatal(err)
	}
	ignoreEmpty := cmp.FilterValues(func(a, b []corev1.Container) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	statuses := cmp.FilterValues(func(a, b []corev1.ContainerStatus) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	if diff := cmp.Diff(kept, got, ignoreEmpty, statuses); diff != "" {
		t.Error(diff)
	}
}
