// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unavailable returns why the volume of a replica may not be changed now, or "". Only volumes of running and ready
// pods of the newest revision are changed, so that a harmful change reaches only one replica of an ordered
// StatefulSet.
func (s snapshot) unavailable(name, claim, template string) string {
	pod := s.pods[name]
	switch {
	case s.set.DeletionTimestamp != nil:
		return "the StatefulSet is being deleted"
	case s.set.Status.ObservedGeneration < s.set.Generation || s.set.Status.UpdateRevision == "":
		return "the StatefulSet controller has not observed the newest version of the StatefulSet yet"
	case pod == nil:
		return fmt.Sprintf("pod %s does not exist", name)
	case !metav1.IsControlledBy(pod, s.set):
		return fmt.Sprintf("pod %s does not belong to the StatefulSet", name)
	case pod.Labels[appsv1.ControllerRevisionHashLabelKey] != s.set.Status.UpdateRevision:
		return fmt.Sprintf("pod %s does not have the newest revision of the StatefulSet", name)
	case !podReady(pod):
		return fmt.Sprintf("pod %s is not ready", name)
	case !uses(pod, template, claim):
		return fmt.Sprintf("pod %s does not use the claim", name)
	}
	return ""
}

// podReady reports whether a pod exists, runs, is ready, and is not being deleted.
func podReady(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func uses(pod *corev1.Pod, volume, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == volume && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}
