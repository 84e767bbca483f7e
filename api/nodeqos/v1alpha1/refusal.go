// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "github.com/qos-nri/qos-nri-plugin/api/qos"

// Refusal is a refused request of a pod, a container, or a volume of a container.
type Refusal struct {
	// Namespace of the pod.
	// +required
	Namespace string `json:"namespace"`

	// Name of the pod.
	// +required
	Pod string `json:"pod"`

	// UID of the pod on its node. For a static pod, it is the UID in the annotation "kubernetes.io/config.mirror".
	// +required
	PodUID string `json:"podUID"`

	// Name of the container; absent when the request of the pod as a whole is refused.
	// +optional
	Container string `json:"container,omitempty"`

	// Path of the volume in the container; absent when the request of the container or pod is refused.
	// +optional
	Volume string `json:"volume,omitempty"`

	// The machine-readable reason, in CamelCase, e.g. "ClassFull". "ChangeRefused" means that the container or pod runs,
	// but not in the class that its annotations request now. With any other reason, it is not created, or runs without
	// the class.
	// +required
	Reason string `json:"reason"`

	// The human-readable reason, with the remedy.
	// +required
	Message string `json:"message"`
}

// Subject returns the pod, container or volume whose request is refused.
func (r *Refusal) Subject() qos.Subject {
	return qos.Subject{PodUID: r.PodUID, Container: r.Container, Volume: r.Volume}
}
