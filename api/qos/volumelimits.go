// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package qos

// VolumeLimits are the limits of a class of volumes. They apply to each disk of a volume. Absent limits, which are 0, are unlimited.
type VolumeLimits struct {
	// Bytes a second that a pod may read from a volume.
	// +optional
	// +kubebuilder:validation:Minimum=2
	MaxReadBps int64 `json:"maxReadBps,omitempty"`

	// Bytes a second that a pod may write to a volume.
	// +optional
	// +kubebuilder:validation:Minimum=2
	MaxWriteBps int64 `json:"maxWriteBps,omitempty"`

	// Reads a second.
	// +optional
	// +kubebuilder:validation:Minimum=2
	MaxReadIops int64 `json:"maxReadIops,omitempty"`

	// Writes a second.
	// +optional
	// +kubebuilder:validation:Minimum=2
	MaxWriteIops int64 `json:"maxWriteIops,omitempty"`
}
