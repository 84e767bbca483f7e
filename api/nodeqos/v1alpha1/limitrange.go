// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// QOSLimitRange has the default classes of a namespace, and limits its pods. It replaces the fields that KEP-3008 ("Default and limits") adds to
// LimitRange. Only admission policies read it, when a pod is created: running pods keep their classes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=qoslimitranges,singular=qoslimitrange,shortName=qlr,categories={qos}
// +kubebuilder:printcolumn:name="Containers",type=string,JSONPath=`.spec.limits[?(@.type=="Container")].qosResources[*].default`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.limits[?(@.type=="Pod")].qosResources[*].default`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type QOSLimitRange struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The defaults and limits of the namespace.
	// +required
	Spec QOSLimitRangeSpec `json:"spec"`
}

// QOSLimitRangeList is a list of QOSLimitRanges.
//
// +kubebuilder:object:root=true
type QOSLimitRangeList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// The objects.
	Items []QOSLimitRange `json:"items"`
}

// QOSLimitRangeSpec has the defaults and limits of a namespace.
type QOSLimitRangeSpec struct {
	// Defaults and limits for resources of pods and of containers, one item each.
	// +required
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Limits []QOSLimitRangeItem `json:"limits"`
}

// QOSLimitRangeItem has the defaults and limits of the containers, or of the pods, of a namespace.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Pod' || !self.qosResources.exists(r, r.name in ['rdt', 'blockio'])",message="that is for containers"
// +kubebuilder:validation:XValidation:rule="self.type != 'Pod' || !self.qosResources.exists(r, r.name.startsWith('k8s.io/'))",message="that is for containers"
// +kubebuilder:validation:XValidation:rule="!self.qosResources.exists(r, self.qosResources.exists(o, o.name == 'k8s.io/' + r.name))",message="named twice"
type QOSLimitRangeItem struct {
	// The scope of the defaults: Container, for resources of containers, or Pod, for resources of pods.
	// +required
	// +kubebuilder:validation:Enum=Container;Pod
	Type Scope `json:"type"`

	// The default class and the limits of each resource.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	QOSResources []LimitQOSResource `json:"qosResources"`
}

// LimitQOSResource has the default class and the limits of a resource.
//
// +kubebuilder:validation:XValidation:rule="has(self.default) || has(self.max)",message="write default or max"
// +kubebuilder:validation:XValidation:rule="!self.name.startsWith('k8s.io/') || self.name in ['k8s.io/rdt', 'k8s.io/blockio']",message="k8s.io: rdt, blockio"
// +kubebuilder:validation:XValidation:rule="self.name.contains('/') || self.name in ['rdt', 'blockio']",message="put a domain before it, as vendor.example/"
// +kubebuilder:validation:XValidation:rule="!self.name.contains('kubernetes.io/')",message="Kubernetes keeps the domain kubernetes.io to itself"
// +kubebuilder:validation:XValidation:rule="!has(self.default)||self.name.split('/')[?1].orValue(self.name).size()+self.default.size()<63",message="too long"
type LimitQOSResource struct {
	// Name of the resource, e.g. "k8s.io/rdt". "rdt" and "blockio" are accepted as short names.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Name string `json:"name"`

	// Class of containers or pods that request no class of the resource. Their nodes must offer this class, because a
	// default class is counted and refused like a requested class.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Default string `json:"default,omitempty"`

	// The maximum usage of classes by one pod. A class that is not listed is unlimited.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Max []QOSResourceClassLimit `json:"max,omitempty"`
}

// QOSResourceClassLimit limits the usage of a class by one pod.
type QOSResourceClassLimit struct {
	// Name of the class.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	Name string `json:"name"`

	// The maximum number of containers of a pod, init containers included, that request the class. 0 forbids the class.
	// +required
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity"`
}
