// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
	"github.com/qos-nri/qos-nri-plugin/internal/podspec"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxAnnotation is one byte more than pkg/classes accepts for a request. A request that is too long is therefore still
// too long after it is truncated.
const maxAnnotation = 16<<10 + 1

// strip is the transform function of the informer. It reduces a pod to the fields that this package uses, because a
// node may have hundreds of pods. It may modify its argument.
func strip(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a tombstone
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, Annotations: strippedAnnotations(pod),
		},
		Spec: corev1.PodSpec{
			InitContainers: strippedContainers(pod.Spec.InitContainers), Containers: strippedContainers(pod.Spec.Containers),
			EphemeralContainers: strippedEphemeral(pod.Spec.EphemeralContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase,
			Conditions: slices.Clone(slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type != nodeqosv1alpha1.PodConditionAssigned
			})),
			ContainerStatuses:          strippedStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses:      strippedStatuses(pod.Status.InitContainerStatuses),
			EphemeralContainerStatuses: strippedStatuses(pod.Status.EphemeralContainerStatuses),
		},
	}, nil
}

func strippedAnnotations(pod *corev1.Pod) map[string]string {
	names := podspec.Containers(pod)
	kept := map[string]string{}
	for _, ignored := range classes.Ignored(pod.Annotations, names) {
		kept[strings.Clone(ignored.Key)] = "" // only its key is reported
	}
	for key, value := range pod.Annotations {
		container := podrequests.ContainerOf(key)
		isRequest := classes.IsPodRequest(key) && (container == "" || slices.Contains(names, container))
		if key != corev1.MirrorPodAnnotationKey && key != classes.EffectiveKey && !isRequest {
			continue
		}
		if len(value) > maxAnnotation {
			value = strings.Clone(value[:maxAnnotation]) // a substring would keep the whole value in memory
		}
		kept[key] = value
	}
	return kept
}

// strippedContainers reduces each container to its name, its restart policy and its limits of extended resources. It
// recognizes an extended resource by the "/" in the name.
func strippedContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		limits := c.Resources.Limits
		maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool { return !strings.Contains(string(name), "/") })
		kept = append(kept, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Limits: limits},
		})
	}
	return kept
}

func strippedEphemeral(containers []corev1.EphemeralContainer) (kept []corev1.EphemeralContainer) {
	for i := range containers {
		kept = append(kept, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: containers[i].Name}})
	}
	return kept
}

func strippedStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	kept := make([]corev1.ContainerStatus, 0, len(statuses))
	for i := range statuses {
		s := corev1.ContainerStatus{Name: statuses[i].Name, ContainerID: statuses[i].ContainerID}
		if statuses[i].State.Running != nil {
			s.State.Running = &corev1.ContainerStateRunning{}
		}
		kept = append(kept, s)
	}
	return kept
}

func unchanged(before, after any) bool {
	a, ok := before.(*corev1.Pod)
	b, also := after.(*corev1.Pod)
	if !ok || !also {
		return false
	}
	x, y := *a, *b
	x.ResourceVersion, y.ResourceVersion = "", ""
	return equality.Semantic.DeepEqual(&x, &y)
}

// finished reports whether a pod is ending or has ended. This package does not change the condition and events of such a pod.
func finished(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || podspec.Finished(pod)
}
