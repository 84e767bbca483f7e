// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StatefulSetVolumes requests a size and a VolumeAttributesClass for the volumes of the StatefulSet with the same name and namespace.
// It replaces the changes of spec.volumeClaimTemplates that KEP-0661 allows and the API server refuses. "qos-storage resize" changes
// the claims of the StatefulSet's pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=statefulsetvolumes,singular=statefulsetvolumes,shortName=ssv,categories={qos}
// +kubebuilder:printcolumn:name="Storage",type=string,JSONPath=`.spec.volumeClaimTemplates[*].storage`
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.volumeClaimTemplates[*].volumeAttributesClassName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.volumeClaimTemplates[*].readyReplicas`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StatefulSetVolumes struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata. The name is that of the StatefulSet.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// What the volumes of the StatefulSet should have.
	// +required
	Spec StatefulSetVolumesSpec `json:"spec"`

	// What the volumes have. Written by "qos-storage resize".
	// +optional
	Status StatefulSetVolumesStatus `json:"status,omitzero"`
}

// StatefulSetVolumesList is a list of StatefulSetVolumes.
//
// +kubebuilder:object:root=true
type StatefulSetVolumesList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// The objects.
	Items []StatefulSetVolumes `json:"items"`
}

// StatefulSetVolumesSpec is what the volumes of a StatefulSet should have.
type StatefulSetVolumesSpec struct {
	// One item for each claim template whose volumes are changed. The volumes of other templates stay as they are.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates"`
}

// VolumeClaimTemplate is what the volumes of one claim template should have.
//
// +kubebuilder:validation:XValidation:rule="has(self.storage) || has(self.volumeAttributesClassName)",message="set storage, volumeAttributesClassName, or both"
type VolumeClaimTemplate struct {
	// Name of the claim template in the StatefulSet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Size of the volumes. A claim that requests more is not changed, with one exception: if the controller has made the
	// request, its expansion has failed, and this size is above the present capacity of the volume, the request is
	// reduced to this size. Suffixes are k, M, G, T, P, E, and Ki to Ei; there are no exponents.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(\.[0-9]{1,9})?([KMGTPE]i|[kMGTPE])?$`
	Storage *resource.Quantity `json:"storage,omitempty"`

	// Name of the VolumeAttributesClass of the volumes.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VolumeAttributesClassName string `json:"volumeAttributesClassName,omitempty"`
}

// StatefulSetVolumesStatus is what the volumes of a StatefulSet have.
type StatefulSetVolumesStatus struct {
	// The generation of the spec that the status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// One item for each item of the spec.
	// +optional
	// +listType=map
	// +listMapKey=templateName
	VolumeClaimTemplates []VolumeClaimTemplateStatus `json:"volumeClaimTemplates,omitempty"`

	// The condition Ready is True when the volumes of all replicas have what the spec requests. The condition Stalled is True while a
	// request is refused or has failed, and a person has to act.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VolumeClaimTemplateStatus is what the volumes of one claim template have. The fields are those of KEP-0661.
type VolumeClaimTemplateStatus struct {
	// Name of the claim template.
	// +required
	TemplateName string `json:"templateName"`

	// Number of replicas whose volumes have what the spec requests.
	// +required
	ReadyReplicas int32 `json:"readyReplicas"`

	// The latest generation of the spec that the volumes of all replicas have had.
	// +optional
	FinishedReconciliationGeneration int64 `json:"finishedReconciliationGeneration,omitempty"`
}

// SizePattern is the pattern of a size in the spec. It allows no exponents, because comparing sizes with exponents can
// take hours.
const SizePattern = `^[0-9]{1,18}(\.[0-9]{1,9})?([KMGTPE]i|[kMGTPE])?$`

// MaxVolumes is the maximum number of volumes of a StatefulSet: its replicas, multiplied by its claim templates.
const MaxVolumes = 10_000

// Annotations of StatefulSets. The name of a claim template follows each prefix. "qos-storage resize" writes their values into the
// StatefulSetVolumes object, and creates it if there is none.
const (
	StoragePrefix               = "storage.qos.noderesource.dev/"
	VolumeAttributesClassPrefix = "volume-attributes-class.qos.noderesource.dev/"
)

// AppliedAnnotation is the annotation of a StatefulSetVolumes object with the requests of the StatefulSet's annotations that
// "qos-storage resize" has written into the object.
const AppliedAnnotation = "qos.noderesource.dev/applied-annotations"

// CreatedAnnotation is an annotation of a StatefulSetVolumes object that "qos-storage resize" has created. The object is deleted together
// with its StatefulSet.
const CreatedAnnotation = "qos.noderesource.dev/created-for-annotations"

// Types of conditions of StatefulSetVolumes.
const (
	ConditionVolumesReady   = "Ready"
	ConditionVolumesStalled = "Stalled"
)

// Reasons of the conditions of StatefulSetVolumes.
const (
	// ReasonAllReplicasReady is the reason while Ready is True.
	ReasonAllReplicasReady = "AllReplicasReady"
	// ReasonWaiting means that the controller waits for a pod, or that a volume is being changed.
	ReasonWaiting = "Waiting"
	// ReasonVolumeFailed means that the driver has failed to change a volume.
	ReasonVolumeFailed = "VolumeFailed"
	// ReasonPatchRefused means that the API server has refused the change of a claim.
	ReasonPatchRefused = "PatchRefused"
	// ReasonExpansionNotAllowed means that the StorageClass of a claim does not allow expansion.
	ReasonExpansionNotAllowed = "ExpansionNotAllowed"
	// ReasonNoStatefulSet means that there is no StatefulSet with the name of the object.
	ReasonNoStatefulSet = "NoStatefulSet"
	// ReasonNoTemplate means that the StatefulSet has no claim template with a name in the spec.
	ReasonNoTemplate = "NoTemplate"
	// ReasonInvalidSize means that a size in the spec does not match the pattern of the field. The API server refuses such sizes in new
	// objects.
	ReasonInvalidSize = "InvalidSize"
	// ReasonTooManyVolumes means that the StatefulSet has more volumes than the controller changes.
	ReasonTooManyVolumes = "TooManyVolumes"
)
