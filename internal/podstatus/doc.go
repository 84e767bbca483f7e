// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstatus tells on pods which QoS classes they have: by a condition, and by events.
package podstatus

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ConditionType is that of the pod condition. It is True while the pod has the classes that its message tells, and False when it
// is refused some that it asks for.
const ConditionType = corev1.PodConditionType(classes.Domain + "/Assigned")

// Reasons of the condition; when the plugin refuses a pod, its word for that is the reason.
const (
	// ReasonAssigned is that of the condition while it is True.
	ReasonAssigned = "Assigned"
	// ReasonRefused is for refusals without a word of their own.
	ReasonRefused = "Refused"
	// ReasonChangeRefused says that the pod runs, but not in the classes that its annotations ask for by now.
	ReasonChangeRefused = "ChangeRefused"
)

// Reasons of events.
const (
	// EventRefused warns that a container or pod was not created because of its classes.
	EventRefused = "QOSClassRefused"
	// EventChanged tells that a running container has another class.
	EventChanged = "QOSClassChanged"
	// EventChangeRefused warns that a change that the pod's annotations ask for was not made.
	EventChangeRefused = "QOSChangeRefused"
)

// FieldManager owns the condition, and reports the events.
const FieldManager = "qos-kubelet-shim"

// strip makes of a pod what this package needs of it; with hundreds of pods that is memory that matters.
func strip(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil // a mark of a pod that is gone
	}
	stripped := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, Annotations: keptAnnotations(pod),
		},
		Spec: corev1.PodSpec{
			NodeName:       pod.Spec.NodeName,
			InitContainers: keptContainers(pod.Spec.InitContainers), Containers: keptContainers(pod.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase:                      pod.Status.Phase,
			ContainerStatuses:          keptStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses:      keptStatuses(pod.Status.InitContainerStatuses),
			EphemeralContainerStatuses: keptStatuses(pod.Status.EphemeralContainerStatuses),
		},
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == ConditionType {
			stripped.Status.Conditions = append(stripped.Status.Conditions, c)
		}
	}
	return stripped, nil
}

// longestValue is one byte more than pkg/classes takes of a request, so that what is too long stays too long.
const longestValue = 16<<10 + 1

// keptAnnotations are the requests for the pod and for the containers that it has.
func keptAnnotations(pod *corev1.Pod) map[string]string {
	var kept map[string]string
	for key, value := range pod.Annotations {
		if key != corev1.MirrorPodAnnotationKey && (!classes.IsPodRequest(key) || !concerns(pod, key)) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		if len(value) > longestValue {
			value = strings.Clone(value[:longestValue]) // a part of it would keep the whole in memory
		}
		kept[key] = value
	}
	return kept
}

// concerns says whether a request is for the pod, or for a container that it has.
func concerns(pod *corev1.Pod, key string) bool {
	name := podrequests.ContainerOf(key)
	is := func(c corev1.Container) bool { return c.Name == name }
	return name == "" || slices.ContainsFunc(pod.Spec.Containers, is) || slices.ContainsFunc(pod.Spec.InitContainers, is) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

func keptContainers(containers []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		c := &containers[i]
		kept = append(kept, corev1.Container{
			Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Limits: keptLimits(c.Resources.Limits)},
		})
	}
	return kept
}

// keptLimits are those of extended resources, which have a domain.
func keptLimits(limits corev1.ResourceList) corev1.ResourceList {
	var kept corev1.ResourceList
	for name, amount := range limits {
		if strings.Contains(string(name), "/") {
			if kept == nil {
				kept = corev1.ResourceList{}
			}
			kept[name] = amount
		}
	}
	return kept
}

func keptStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
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

// finished says whether nothing is told of a pod any more: it stays as it was told last.
func finished(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
