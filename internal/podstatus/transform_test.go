// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

func TestTheCacheKeepsOnlyTheFieldsOfPodsThatAreUsed(t *testing.T) {
	one := resource.MustParse("1")
	kept := podWith("main")
	kept.Annotations = map[string]string{"qos.noderesource.dev/pod": "rdt=gold", corev1.MirrorPodAnnotationKey: "hash"}
	kept.ResourceVersion = "7"
	kept.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"qos.noderesource.dev/rdt.gold": one}
	kept.Status.Phase = corev1.PodRunning
	kept.Status.Conditions = []corev1.PodCondition{{Type: nodeqosv1alpha1.PodConditionAssigned, Status: corev1.ConditionTrue}}
	kept.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "main", ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}

	whole := kept.DeepCopy()
	whole.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = "{}"
	whole.Labels = map[string]string{"app": "web"}
	whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	whole.Spec.NodeName = "worker"
	whole.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	c := &whole.Spec.Containers[0]
	c.Image, c.Env, c.Resources.Limits["cpu"], c.Resources.Requests = "example", []corev1.EnvVar{{Name: "PASSWORD"}}, one, corev1.ResourceList{"cpu": one}
	whole.Status.Conditions = append(whole.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady})
	whole.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.Now()
	whole.Status.ContainerStatuses[0].ImageID = "sha256"

	got := must.Get(strip(whole))(t)

	ignoreEmpty := cmp.FilterValues(func(a, b []corev1.Container) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	statuses := cmp.FilterValues(func(a, b []corev1.ContainerStatus) bool { return len(a)+len(b) == 0 }, cmp.Ignore())
	if diff := cmp.Diff(kept, got, ignoreEmpty, statuses); diff != "" {
		t.Error(diff)
	}
}

// TestHostileAnnotationsAreStripped: long values are cut. Annotations for a container that the pod does not have request nothing: of those of
// Kubernetes and this project, only the key is kept, and those of runtimes are dropped.
func TestHostileAnnotationsAreStripped(t *testing.T) {
	long := strings.Repeat("rdt=gold,", 20_000)
	hostile := podWith("main")
	hostile.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	hostile.Annotations = map[string]string{
		"qos.noderesource.dev/pod": long, "container.qos.noderesource.dev/main": "rdt=gold", "container.qos.noderesource.dev/debug": "rdt=gold",
		"rdt.resources.kubernetes.io/default": "gold", "rdt.resources.kubernetes.io/container.main": "gold",
		"container.qos.noderesource.dev/none": "rdt=gold", "rdt.resources.kubernetes.io/container.none": "gold",
		"rdt.resources.beta.kubernetes.io/container.none": "gold", corev1.MirrorPodAnnotationKey: long,
	}

	got := must.Get(strip(hostile))(t)

	kept := got.(*corev1.Pod).Annotations
	want := maps.Clone(hostile.Annotations)
	delete(want, "rdt.resources.beta.kubernetes.io/container.none")
	for _, key := range []string{"container.qos.noderesource.dev/none", "rdt.resources.kubernetes.io/container.none"} {
		want[key] = ""
	}
	for _, key := range []string{"qos.noderesource.dev/pod", corev1.MirrorPodAnnotationKey} {
		want[key] = long[:16<<10+1]
	}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Errorf("annotations (-want +got):\n%.2000s", diff)
	}

	offers := classes.NewCatalog([]classes.Offer{{Resource: classes.Resource{
		Name: "k8s.io/rdt", Scope: classes.ContainerScope, Classes: []classes.Class{{Name: "gold"}},
	}}})

	request := classes.Holder{Container: "main", PodAnnotations: map[string]string{"qos.noderesource.dev/pod": kept["qos.noderesource.dev/pod"]}}
	// the part of a value that is kept is too long for a request, so it does not become a valid one
	if _, err := offers.Resolve(request); err == nil || !strings.Contains(err.Error(), "is longer than") {
		t.Errorf("a cut annotation resolves with error %v; want it rejected as too long", err)
	}
}
