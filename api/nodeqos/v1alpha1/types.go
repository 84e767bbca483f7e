// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeQOSResources reports the QoS-class resources of a node, with the use and the holders of each class. The object has the name
// of its node and is deleted with it. The shim on the node writes the status. qos-storage writes the spec.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=nodeqosresources,singular=nodeqosresources,shortName=nqr,categories={qos}
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="PluginReady")].status`
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.conditions[?(@.type=="ConfigurationApplied")].reason`
// +kubebuilder:printcolumn:name="Unavailable",type=string,JSONPath=`.status.unavailableResources[0].name`
// +kubebuilder:printcolumn:name="Heartbeat",type=date,JSONPath=`.status.lastHeartbeatTime`
// +kubebuilder:printcolumn:name="Runtime",type=string,JSONPath=`.status.runtime.name`,priority=1
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.status.plugin.version`,priority=1
// +kubebuilder:printcolumn:name="Config hash",type=string,JSONPath=`.status.config.hash`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeQOSResources struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata. The name is the name of the node.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// The classes of volumes that qos-storage requests on this node. Nothing else in the object configures the node.
	// +optional
	Spec NodeQOSResourcesSpec `json:"spec,omitzero"`

	// The state of the node. It is written when it changes, and at least every five minutes.
	// +optional
	Status NodeQOSResourcesStatus `json:"status,omitzero"`
}

// NodeQOSResourcesList is a list of NodeQOSResources.
//
// +kubebuilder:object:root=true
type NodeQOSResourcesList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	// The objects.
	Items []NodeQOSResources `json:"items"`
}

// NodeQOSResourcesStatus is the state of the resources on a node.
type NodeQOSResourcesStatus struct {
	// The QoS-class resources of the node with their classes, in the shape that KEP-3008 gives to NodeStatus.
	// +optional
	QOSResources QOSResourceStatus `json:"qosResources,omitzero"`

	// Resources that are configured but not available on this machine, with the reason. They are not in qosResources.
	// +optional
	// +listType=map
	// +listMapKey=name
	UnavailableResources []UnavailableResource `json:"unavailableResources,omitempty"`

	// When qos-kubelet-shim last wrote the status. It writes the status at least every five minutes. After ten minutes without a
	// write, the status may be outdated.
	// +optional
	LastHeartbeatTime *metav1.Time `json:"lastHeartbeatTime,omitempty"`

	// Requests for classes that the node refuses. At most 1000 are listed, fewer when their texts are long.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Refusals []Refusal `json:"refusals,omitempty"`

	// The number of refusals that are not listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RefusalsOmitted int64 `json:"refusalsOmitted,omitempty"`

	// Whether a changed annotation of a pod changes the classes of its running containers. If false, it changes nothing until the
	// containers are created again.
	// +optional
	FollowsAnnotations bool `json:"followsAnnotations,omitempty"`

	// Conditions of the node as a whole. PluginReady is True while the plugin responds, has class files in force and is
	// registered with the container runtime; otherwise the rest of the status is the last known state. ConfigurationApplied is
	// True while the class files on disk are in force. RuntimeRegistered is True while the plugin is registered with the
	// container runtime; otherwise no container gets a class. KernelAnswers is False while the kernel does not answer a call
	// of the plugin; the classes of the containers that the message names are then not verified. ReportComplete is False while
	// the object leaves something out, because it would be too large; otherwise the object does not have this condition.
	// ClassesDraining is True while pods have requested a class that was removed from the class files, and names these pods;
	// otherwise the object does not have this condition.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The state of each volume in spec.volumes. Absent if qos-kubelet-shim runs without --follow-claims.
	// +optional
	// +listType=map
	// +listMapKey=podUID
	// +listMapKey=container
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=1000
	Volumes []VolumeStatus `json:"volumes,omitempty"`

	// The metadata.generation of the spec that status.volumes describes. Absent if qos-kubelet-shim runs without --follow-claims.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The class files that are in force.
	// +optional
	Config ConfigStatus `json:"config,omitzero"`

	// The plugin on the node.
	// +optional
	Plugin PluginStatus `json:"plugin,omitzero"`

	// The container runtime that the plugin is registered with.
	// +optional
	Runtime RuntimeStatus `json:"runtime,omitzero"`
}

// These constants define how often the status is written, and when it expires.
const (
	// HeartbeatInterval is the longest time between two writes of the status.
	HeartbeatInterval = 5 * time.Minute
	// HeartbeatTimeout is the maximum age of LastHeartbeatTime. An older status has expired.
	HeartbeatTimeout = 2 * HeartbeatInterval
)

// Expired reports whether the node has stopped reporting. An expired status is the last known state. A status without a
// heartbeat never expires.
func (s *NodeQOSResourcesStatus) Expired(now time.Time) bool {
	return s.LastHeartbeatTime != nil && now.Sub(s.LastHeartbeatTime.Time) > HeartbeatTimeout
}

// QOSResourceStatus describes the QoS-class resources of a node (KEP-3008, "NodeStatus").
type QOSResourceStatus struct {
	// Resources of pod scope: one class for each pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	PodQOSResources []QOSResourceInfo `json:"podQOSResources,omitempty"`

	// Resources of container scope: one class for each container.
	// +optional
	// +listType=map
	// +listMapKey=name
	ContainerQOSResources []QOSResourceInfo `json:"containerQOSResources,omitempty"`

	// Resources of volume scope: one class for each volume of a container. Not in the KEP.
	// +optional
	// +listType=map
	// +listMapKey=name
	VolumeQOSResources []QOSResourceInfo `json:"volumeQOSResources,omitempty"`
}

// QOSResourceInfo describes one QoS-class resource (KEP-3008, "NodeStatus").
type QOSResourceInfo struct {
	// Name of the resource, e.g. "k8s.io/rdt".
	// +required
	Name string `json:"name"`

	// Whether the class of a running container or pod can be changed.
	// +required
	Mutable bool `json:"mutable"`

	// Classes in the order of the class file, draining ones included.
	// +optional
	// +listType=map
	// +listMapKey=name
	Classes []QOSResourceClassInfo `json:"classes,omitempty"`

	// Pods and containers that have no class of the resource, but for which another program has set something, e.g. the container runtime
	// with classes of its own. At most 1000 are listed, fewer when their names are long.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Foreign []ForeignSetting `json:"foreign,omitempty"`

	// The number of such pods and containers that are not listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ForeignOmitted int64 `json:"foreignOmitted,omitempty"`

	// Class of containers and pods that request none. If absent, they get the system default, which enforces nothing.
	// +optional
	DefaultClass string `json:"defaultClass,omitempty"`

	// Conditions of this resource on this machine, e.g. of type WeightsEffective. True is the healthy state; else the message has
	// the remedy.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// QOSResourceClassInfo describes one class of a resource (KEP-3008, "NodeStatus").
type QOSResourceClassInfo struct {
	// Name of the class, unique within its resource.
	// +required
	Name string `json:"name"`

	// The maximum number of assignments of this class on the node. Absent or 0: unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Capacity int64 `json:"capacity,omitempty"`

	// The current number of assignments. It can exceed a capacity that was lowered, because running containers are not evicted.
	// +required
	// +kubebuilder:validation:Minimum=0
	InUse int64 `json:"inUse"`

	// What the class is for, from the class file.
	// +optional
	Description string `json:"description,omitempty"`

	// Which part of the class is not enforced; absent when all of it is.
	// +optional
	Degraded string `json:"degraded,omitempty"`

	// True when the class is no longer configured. It accepts no new assignments, and is removed when the last one ends.
	// +optional
	Draining bool `json:"draining,omitempty"`

	// Name of the extended resource of the class. One unit is one assignment. Containers request it in their limits.
	// +optional
	ExtendedResource string `json:"extendedResource,omitempty"`

	// Conditions of the class. Held is False while the containers or pods of the class use more than the class allows, with reason
	// LimitNotHeld; True with reason Reached or NeverReached; and Unknown with reason NotMeasured. It is absent if the plugin runs
	// without --held-interval, and for classes that promise nothing measurable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Pods, containers and volumes that have the class, by namespace, pod and container. At most 1000 are listed, fewer when their names
	// are long.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Holders []Holder `json:"holders,omitempty"`

	// The number of holders that are not listed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HoldersOmitted int64 `json:"holdersOmitted,omitempty"`
}

// Holder has a class. It is a pod, a container, or a volume of a container.
type Holder struct {
	// Namespace of the pod.
	// +required
	Namespace string `json:"namespace"`

	// Name of the pod.
	// +required
	Pod string `json:"pod"`

	// Name of the container; absent when the pod as a whole has the class.
	// +optional
	Container string `json:"container,omitempty"`

	// Path of the volume in the container; absent when the container or pod has the class.
	// +optional
	Volume string `json:"volume,omitempty"`

	// Numbers (major:minor) of the block devices on which the limits of a volume are set, e.g. "253:3".
	// +optional
	Device string `json:"device,omitempty"`

	// When the limits of a volume were put in force; absent when that is unknown.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// Source of the class: "container" or "pod" (an annotation), "allocated" (an extended resource), "claim" (the
	// PersistentVolumeClaim of a volume), "default", or "rule" and the name of the rule of the class file; "update" if the class
	// was changed while the holder ran; "adopted" if the holder already ran in it when the plugin found the holder.
	// +optional
	Source string `json:"source,omitempty"`

	// Why the pod is to be evicted, in one word, e.g. "ClassRemoved"; absent when the pod is not to be evicted.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// IsDefault reports whether the class files assign the class, because nothing was requested.
func (h Holder) IsDefault() bool {
	return h.Source == "default" || strings.HasPrefix(h.Source, "rule ")
}

// ForeignSetting is what another program has set for a pod or container that has no class of a resource.
type ForeignSetting struct {
	// Namespace of the pod.
	// +required
	Namespace string `json:"namespace"`

	// Name of the pod.
	// +required
	Pod string `json:"pod"`

	// Name of the container; absent when the setting is that of the pod as a whole.
	// +optional
	Container string `json:"container,omitempty"`

	// What the other program has set, as the plugin reads it from the kernel, e.g. "resctrl group batch", "limits of 8:0 (sda)"
	// or "volume /data: lower limits on 8:0 rbps=1000".
	// +required
	Setting string `json:"setting"`
}

// UnavailableResource is a resource that is configured but not available on this machine.
type UnavailableResource struct {
	// Name of the resource, e.g. "k8s.io/rdt".
	// +required
	Name string `json:"name"`

	// Scope that the resource would have.
	// +kubebuilder:validation:Enum=Container;Pod;Volume
	// +optional
	Scope Scope `json:"scope,omitempty"`

	// The machine-readable reason, in CamelCase, e.g. "NoCPUSupport".
	// +optional
	Reason string `json:"reason,omitempty"`

	// The human-readable reason, with the remedy.
	// +optional
	Message string `json:"message,omitempty"`
}

// ConfigStatus describes the class files that are in force.
type ConfigStatus struct {
	// SHA-256 of the names and contents of the files, in hexadecimal. Nodes with equal files have equal hashes. Absent when no
	// files are in force.
	// +optional
	Hash string `json:"hash,omitempty"`

	// When the files with this hash came into force. A restart of the plugin does not change it.
	// +optional
	LoadedAt *metav1.Time `json:"loadedAt,omitempty"`

	// Why the files on disk are not in force, one problem a line; absent when they are.
	// +optional
	Error string `json:"error,omitempty"`
}

// PluginStatus describes the plugin on the node.
type PluginStatus struct {
	// Version of qos-nri-plugin.
	// +optional
	Version string `json:"version,omitempty"`
}

// RuntimeStatus describes the container runtime that the plugin is registered with.
type RuntimeStatus struct {
	// Name, e.g. "containerd".
	// +optional
	Name string `json:"name,omitempty"`

	// Version, e.g. "v2.4.2".
	// +optional
	Version string `json:"version,omitempty"`

	// Version of NRI in the runtime; absent when the runtime does not report it.
	// +optional
	NRIVersion string `json:"nriVersion,omitempty"`
}

// FieldManager is the field manager of the shim's writes.
const FieldManager = "qos-kubelet-shim"

// MaxHolders is the maximum length of the lists Holders (of a class), Foreign (of a resource) and Refusals.
const MaxHolders = 1000
