// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podspec reads containers in the specs of pods, and the UID that a pod has on its node.
package podspec

import corev1 "k8s.io/api/core/v1"

// LimitsOf returns the limits of the named container or init container, or nil if the pod has no such container.
func LimitsOf(pod *corev1.Pod, container string) corev1.ResourceList {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Limits
			}
		}
	}
	return nil
}

// Containers returns the names of all containers of a pod: init, ordinary and ephemeral ones.
func Containers(pod *corev1.Pod) []string {
	var names []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// UID returns the UID that a pod has on its node. A static pod is represented in the API by a mirror pod, which has
// another UID. UID then returns the static pod's UID from an annotation of the mirror pod.
func UID(pod *corev1.Pod) string {
	if uid := pod.Annotations[corev1.MirrorPodAnnotationKey]; uid != "" {
		return uid
	}
	return string(pod.UID)
}

// Finished reports whether all containers of a pod have ended and are not restarted.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
