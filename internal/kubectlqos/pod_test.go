// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
)

// testPod builds a pod. Its methods can be chained: aPod("p").on("n1").running().
type testPod struct{ *corev1.Pod }

// aPod returns a pending pod with one container, main.
func aPod(name string) testPod {
	return testPod{&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}}
}

func (p testPod) on(node string) testPod {
	p.Spec.NodeName = node
	return p
}

func (p testPod) annotated(key, value string) testPod {
	p.Annotations[key] = value
	return p
}

// asks sets the annotation that requests classes for the container main.
func (p testPod) asks(pairs string) testPod {
	return p.annotated("container.qos.noderesource.dev/main", pairs)
}

// limited gives the first container one unit of an extended resource.
func (p testPod) limited(name string) testPod {
	if p.Spec.Containers[0].Resources.Limits == nil {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{}
	}
	p.Spec.Containers[0].Resources.Limits[corev1.ResourceName(name)] = resource.MustParse("1")
	return p
}

// claims gives the first container a ResourceClaim.
func (p testPod) claims(name string) testPod {
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: name}}
	return p
}

func (p testPod) with(container string) testPod {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: container})
	return p
}

// running marks all containers as running since 12:30. The time of the rig is 13:00.
func (p testPod) running() testPod {
	return p.since(time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC))
}

func (p testPod) since(start time.Time) testPod {
	p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: start}
	p.Status.ContainerStatuses = nil
	for i := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: p.Spec.Containers[i].Name, ContainerID: "containerd://" + p.Spec.Containers[i].Name,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: start}}},
		})
	}
	return p
}

// waiting sets the state of the first container to waiting.
func (p testPod) waiting(reason, message string) testPod {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: p.Spec.Containers[0].Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}
	return p
}

func (p testPod) ended(phase corev1.PodPhase, reason, message string) testPod {
	p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, message
	return p
}

func (p testPod) terminating() testPod {
	p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Date(2026, 5, 1, 12, 59, 0, 0, time.UTC)}, []string{"example.com/x"}
	return p
}

// reported sets the condition qos.noderesource.dev/Assigned as qos-kubelet-shim would set it. `at` is the time of day of
// the write, such as "12:55:00".
func (p testPod) reported(status corev1.ConditionStatus, reason, message, at string) testPod {
	written, err := time.Parse(time.RFC3339, "2026-05-01T"+at+"Z")
	if err != nil {
		panic(err)
	}
	p.Status.Conditions = append(p.Status.Conditions[:0:0], corev1.PodCondition{
		Type: nodeqosv1alpha1.PodConditionAssigned, Status: status, Reason: reason, Message: message,
	})
	p.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: nodeqosv1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &metav1.Time{Time: written},
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`), Subresource: "status",
	}}
	return p
}

func (p testPod) unschedulable(message string) testPod {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
	})
	return p
}
