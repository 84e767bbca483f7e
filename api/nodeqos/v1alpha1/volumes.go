// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// NodeQOSResourcesSpec has the volumes of a node, and the class that qos-storage requests for each of them.
type NodeQOSResourcesSpec struct {
	// Whether qos-storage has written the spec. Until then, the node keeps the limits that it has.
	// +optional
	Written bool `json:"written,omitempty"`

	// The classes that PersistentVolumeClaims request on this node, one for each VolumeAttributesClass.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	VolumeClasses []VolumeClass `json:"volumeClasses,omitempty"`

	// The volumes of the pods of this node for which a claim requests a class.
	// +optional
	// +listType=map
	// +listMapKey=podUID
	// +listMapKey=container
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=1000
	Volumes []ClaimedVolume `json:"volumes,omitempty"`

	// The number of volumes that are left out, because the object would be too large. They get no limits, and their claims have events.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VolumesOmitted int64 `json:"volumesOmitted,omitempty"`
}

// VolumeClass has the limits of a class. Absent limits are unlimited.
type VolumeClass struct {
	// Name of the VolumeAttributesClass.
	// +required
	Name string `json:"name"`

	qos.VolumeLimits `json:",inline"`
}

// ClaimedVolume is a volume of a container. The PersistentVolumeClaim of the volume requests a class.
type ClaimedVolume struct {
	// UID of the pod.
	// +required
	PodUID string `json:"podUID"`

	// Name of the container.
	// +required
	Container string `json:"container"`

	// Path of the volume in the container.
	// +required
	Path string `json:"path"`

	// Namespace and name of the PersistentVolumeClaim, e.g. "db/data-0".
	// +required
	Claim string `json:"claim"`

	// Name of a class in volumeClasses.
	// +required
	Class string `json:"class"`

	// Why the class that the claim requests is not valid. The volume then has another class, e.g. its previous class.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// Subject returns the volume, which is unique in the object.
func (v *ClaimedVolume) Subject() qos.Subject {
	return qos.Subject{PodUID: v.PodUID, Container: v.Container, Volume: v.Path}
}

// VolumeState shows whether the limits of a volume are in force.
type VolumeState string

// The states of a volume.
const (
	// VolumeInForce means that the kernel has the limits, or lower ones that another class requires.
	VolumeInForce VolumeState = "InForce"
	// VolumeNotEnforced means that the limits are not in force.
	VolumeNotEnforced VolumeState = "NotEnforced"
)

// Reasons of VolumeNotEnforced. If the plugin refused the class, the reason is that of the plugin, e.g. "SharedDisk".
const (
	// ReasonNotRunning means that the container does not run yet, or that the plugin has not reported it yet.
	ReasonNotRunning = "NotRunning"
	// ReasonInvalidClasses means that the plugin refused all classes of the spec.
	ReasonInvalidClasses = "InvalidClasses"
	// ReasonNotPermitted means that the publisher has no permission to send the spec to the plugin.
	ReasonNotPermitted = "NotPermitted"
	// ReasonInvalidClass means that the class that the claim requests is not valid. The device has the limits of another class.
	ReasonInvalidClass = "InvalidClass"
)

// VolumeStatus is the state of a volume of the spec.
type VolumeStatus struct {
	ClaimedVolume `json:",inline"`

	// InForce or NotEnforced.
	// +required
	// +kubebuilder:validation:Enum=InForce;NotEnforced
	State VolumeState `json:"state"`

	// Numbers (major:minor) of the block devices on which the limits are set, e.g. "253:3".
	// +optional
	Device string `json:"device,omitempty"`

	// When the limits were put in force; absent when that is unknown.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// The machine-readable reason why the limits are not in force, in CamelCase, e.g. "SharedDisk".
	// +optional
	Reason string `json:"reason,omitempty"`

	// The human-readable reason, with the remedy. If the limits are in force: lower limits that another program has set.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageFieldManager is the field manager of qos-storage.
const StorageFieldManager = "qos-storage"
