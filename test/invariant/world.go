// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant checks that the plugin's reports, the runtime and the kernel agree. The check is a function of values. It has
// readers of its own for the kernel's files, so that it finds errors in the plugin's.
package invariant

import (
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// World is a node at one moment.
type World struct {
	// Status and Assignments are the node API's.
	Status      *qosv1alpha1.StatusResponse
	Assignments *qosv1alpha1.ListAssignmentsResponse
	// Live has the runtime's pods and containers.
	Live Live
	// Kernel is the kernel's state of them.
	Kernel Kernel
	// Kubernetes is what kubelet and API have; nil is unknown.
	Kubernetes *Kubernetes
	// Foreign is the content of foreign files, by path. Before is their earlier content; nil is unknown.
	Foreign, Before map[string]string
	// Expect has the expected values of classes.
	Expect Expect
}

// Live has the pods and containers that exist.
type Live struct {
	Pods       []Pod
	Containers []Container
}

// Pod is a pod sandbox. The UID of a pod that no kubelet has created is the ID of its sandbox.
type Pod struct {
	UID, Namespace, Name string
	// ID is the runtime's.
	ID string
	// Cgroup is the pod's directory below the root of the hierarchies.
	Cgroup string
}

// Container is a container that is created or runs.
type Container struct {
	PodUID, PodNamespace, PodName, Name string
	// ID is the runtime's.
	ID string
	// Cgroup is its directory below the root of the hierarchies.
	Cgroup string
	// Started is whether its first process runs.
	Started bool
	// Recorded is whether the runtime stores the classes of its creation.
	Recorded bool
}

// Kernel is what the kernel has.
type Kernel struct {
	// Groups are resctrl's control groups by name, the root's being empty; nil while resctrl is not mounted.
	Groups map[string]Group
	// Cgroups are those of live containers and pods, by the ID of container or sandbox.
	Cgroups map[string]Cgroup
	// Classes are the classes of targets in a fake kernel without resctrl and cgroups, by resource and ID.
	Classes map[string]map[string]string
}

// Group is a resctrl control group.
type Group struct {
	// Schemata is the file's text.
	Schemata string
	// Tasks are the threads in it.
	Tasks []int
}

// Cgroup is a cgroup with its children.
type Cgroup struct {
	// Threads are those of the cgroup and of all below it.
	Threads []int
	// Files are those of the io or blkio controller, by name.
	Files map[string]string
}

// Class is a class of a resource.
type Class struct{ Resource, Name string }

// Expect has what neither the API nor the kernel reports.
type Expect struct {
	// Resctrl is the resource whose classes are resctrl groups; k8s.io/rdt when empty.
	Resctrl string
	// Schemata are lines that the groups of classes must have, by class.
	Schemata map[string]string
	// Limits are the files' texts of a class, by resource, class and file. Other classes and the system default must be
	// unlimited. Other resources are not checked.
	Limits map[string]map[string]map[string]string
	// Volumes are the limits of classes of volumes, by class and kind, as io.max names them.
	Volumes map[string]map[string]uint64
	// Most is how many may have a class although its capacity is lower: its holders when the capacity was lowered.
	Most map[Class]uint64
}

const (
	defaultResctrl = "k8s.io/rdt"
	groupPrefix    = "qos-"
	rootGroup      = ""
)

func (e Expect) resctrl() string {
	if e.Resctrl == "" {
		return defaultResctrl
	}
	return e.Resctrl
}
