// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariant checks that the plugin's reports, the runtime and the kernel agree. The function Violations is the
// check. It does no I/O. The package has its own readers for the kernel's files, so that the check finds errors in the
// plugin's readers.
package invariant

import (
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// World is the state of a node at one moment.
type World struct {
	// Status and Assignments are messages of the node API.
	Status      *qosv1alpha1.StatusResponse
	Assignments *qosv1alpha1.ListAssignmentsResponse
	// Live has the runtime's pods and containers.
	Live Live
	// Kernel is the kernel's state of these pods and containers.
	Kernel Kernel
	// Kubernetes is the state in kubelet and Kubernetes API. It is nil if this state is unknown.
	Kubernetes *Kubernetes
	// Foreign has the content of foreign files, by path. Before has their earlier content, or is nil if the earlier
	// content is unknown.
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
	// ID is the ID in the runtime.
	ID string
	// Cgroup is the pod's directory below the root of the hierarchies.
	Cgroup string
}

// Container is a container that is created or runs.
type Container struct {
	PodUID, PodNamespace, PodName, Name string
	// ID is the ID in the runtime.
	ID string
	// Cgroup is the container's directory below the root of the hierarchies.
	Cgroup string
	// Started is true if the container's first process runs.
	Started bool
	// Recorded is true if the runtime stores the classes that the container got at its creation.
	Recorded bool
}

// Kernel is the state of the kernel.
type Kernel struct {
	// Groups has resctrl's control groups by name. The name of the root is empty. Groups is nil while resctrl is not
	// mounted.
	Groups map[string]Group
	// Cgroups has the cgroups of live containers and pods, by the ID of the container or sandbox.
	Cgroups map[string]Cgroup
	// Classes are the classes of targets in a fake kernel without resctrl and cgroups, by resource and ID.
	Classes map[string]map[string]string
}

// Group is a resctrl control group.
type Group struct {
	// Schemata is the text of the file schemata.
	Schemata string
	// Tasks has the thread IDs of the group, including those in its monitoring groups.
	Tasks []int
	// Monitors has the thread IDs of each monitoring group, by its name.
	Monitors map[string][]int
}

// Cgroup is a cgroup with its children.
type Cgroup struct {
	// Threads has the threads of the cgroup and of all cgroups below it.
	Threads []int
	// Files has the contents of the files of the io or blkio controller, by name.
	Files map[string]string
}

// Class is a class of a resource.
type Class struct{ Resource, Name string }

// Expect has expected values that the check cannot read from the API or the kernel, so that the test must supply them.
type Expect struct {
	// Resctrl is the resource whose classes are resctrl groups. If it is empty, the resource is k8s.io/rdt.
	Resctrl string
	// Schemata has the lines that the group of each class must have.
	Schemata map[string]string
	// Limits has the expected text of each cgroup file, by resource, class and file. Other classes and the system
	// default must be unlimited. Other resources are not checked.
	Limits map[string]map[string]map[string]string
	// Volumes has the limits of volume classes, by class and kind. The kinds are named as in io.max.
	Volumes map[string]map[string]uint64
	// Monitored reports whether the containers of a class of RDT are to be monitored. If it is nil, monitoring is not checked.
	Monitored func(class string) bool
	// RMIDs is the number of RMIDs that monitoring groups can use. While some of them are unused, each container that is
	// to be monitored must have a monitoring group. If RMIDs is 0, a report of the plugin that it could not monitor all
	// containers is accepted.
	RMIDs int
	// `Most` has an entry for each class whose capacity was lowered. The class may keep as many holders as it had at that time.
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
