// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant says what must hold whatever happened to the plugin: what it reports, what runs, and what the kernel has agree.
// The check is a function of values. The kernel is read here anew, apart from the plugin's own readers, so that an error in
// those is found.
package invariant

import (
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// World is a node at one moment.
type World struct {
	// Status and Assignments are what the node API tells.
	Status      *qosv1alpha1.StatusResponse
	Assignments *qosv1alpha1.ListAssignmentsResponse
	// Live is what runs, by the runtime.
	Live Live
	// Kernel is what the kernel has of it.
	Kernel Kernel
	// Foreign is what stands in files that are not ours, by path. Before is what stood there before; nil is not known.
	Foreign, Before map[string]string
	// Expect is what the classes should come to.
	Expect Expect
}

// Live is what has been made and has not ended.
type Live struct {
	Pods       []Pod
	Containers []Container
}

// Pod is a pod sandbox.
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
	// Started is false before its first process was let go.
	Started bool
	// Recorded says that it was given classes at its creation, of which the runtime has a record.
	Recorded bool
}

// Kernel is what the kernel has.
type Kernel struct {
	// Groups are resctrl's control groups by name, the root's being empty; nil while resctrl is not mounted.
	Groups map[string]Group
	// Cgroups are those of live containers and pods, by the ID of container or sandbox.
	Cgroups map[string]Cgroup
	// Classes are, by resource and ID, the classes that a fake kernel without resctrl and cgroups has its targets in.
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

// Expect is what the caller knows that neither API nor kernel tell.
type Expect struct {
	// Resctrl is the resource whose classes are resctrl groups; k8s.io/rdt when empty.
	Resctrl string
	// Schemata are lines that the groups of classes must have, by class.
	Schemata map[string]string
	// Limits are the files' texts that a class comes to, by resource, class and file. What is not there must be unlimited, and so
	// must the system default. Resources that are not there are not looked at.
	Limits map[string]map[string]map[string]string
	// Most is how many may have a class though its capacity is less: those that had it when the capacity was lowered.
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
