// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
)

// Owner has slots of classes: a container of a pod by its name, or the pod if Container is empty. It outlives container IDs, so
// that a restarted container does not compete with its predecessor.
type Owner struct{ PodUID, Container string }

func (o Owner) String() string {
	if o.Container == "" {
		return "pod " + o.PodUID
	}
	return fmt.Sprintf("container %q of pod %s", o.Container, o.PodUID)
}

// Holder is a container, or a pod sandbox if Container is empty, as the runtime reports it. It requests and holds classes, and
// backends enforce them on its processes and its cgroup.
type Holder struct {
	// ID is the runtime's ID of the container or of the pod sandbox.
	ID                            string
	PodNamespace, PodName, PodUID string
	// Container is its name in the pod; empty in pod scope.
	Container string
	// SandboxID is the runtime's ID of the pod sandbox.
	SandboxID string
	// PodAnnotations and ContainerAnnotations may request classes.
	PodAnnotations, ContainerAnnotations map[string]string
	// CgroupsPath is as in the OCI runtime spec: a path below the cgroup root, or "slice:prefix:name" with the
	// systemd driver. In pod scope it is the pod's cgroup parent: a path or a slice.
	CgroupsPath string
	// PID is the ID of the first process in the host's PID namespace; 0 when there is none yet, or it is unknown.
	PID int
	// Starting is true from the creation of the container's first process to its first instruction. The runtime has applied
	// all settings by then, and the container has no other processes yet.
	Starting bool
}

// Owner returns the owner of the holder's slots.
func (h Holder) Owner() Owner { return Owner{h.PodUID, h.Container} }

// Scope returns the scope of the resources whose classes the holder can have.
func (h Holder) Scope() Scope {
	if h.Container == "" {
		return PodScope
	}
	return ContainerScope
}

// String names the holder in errors and logs.
func (h Holder) String() string {
	var parts []string
	if h.PodName != "" {
		parts = append(parts, "pod "+clip(h.PodNamespace)+"/"+clip(h.PodName))
	}
	if h.Container != "" {
		parts = append(parts, "container "+clip(h.Container))
	}
	return strings.Join(parts, " ")
}

// WithoutUnusedAnnotations returns the holder with only those annotations that Resolve reads.
func (h Holder) WithoutUnusedAnnotations() Holder {
	h.PodAnnotations, h.ContainerAnnotations = maps.Clone(h.PodAnnotations), maps.Clone(h.ContainerAnnotations)
	for _, annotations := range []map[string]string{h.PodAnnotations, h.ContainerAnnotations} {
		maps.DeleteFunc(annotations, func(key, _ string) bool { return !IsPodRequest(key) && !isContainerRequest(key) })
	}
	return h
}

// AnnotationsSize returns the size of all annotations in bytes.
func (h Holder) AnnotationsSize() (bytes int) {
	for _, annotations := range []map[string]string{h.PodAnnotations, h.ContainerAnnotations} {
		for key, value := range annotations {
			bytes += len(key) + len(value)
		}
	}
	return bytes
}

// Source is where an assignment comes from.
type Source string

const (
	// SourceContainer is a request of the container itself.
	SourceContainer Source = "container"
	// SourceAllocated is the kubelet's allocation of the extended resource of a class.
	SourceAllocated Source = "allocated"
	// SourcePod is a request of the pod: for itself, or as the default of its containers.
	SourcePod Source = "pod"
	// SourceDefault is the resource's DefaultClass.
	SourceDefault Source = "default"
	// SourceNone goes with SystemDefault: nothing is requested, and there is no default.
	SourceNone Source = ""
	// SourceAdopted is the class in which a running container or pod was found.
	SourceAdopted Source = "adopted"
	// SourceUpdate is a change of the class of a running container or pod.
	SourceUpdate Source = "update"
)

// Assignment is the class of one resource that a container or pod has, or requests.
type Assignment struct {
	Resource, Class string
	Source          Source
	// Key is the key of the requesting annotation, if there is one.
	Key string
}

// Holding is a holder with its assignments, which are read-only.
type Holding struct {
	Holder
	Assignments []Assignment
}

// Class returns the class of a resource that the holder is assigned.
func (h Holding) Class(resource string) string { return ClassOf(h.Assignments, resource) }

// ClassOf returns the class of a resource among assignments; SystemDefault when there is none.
func ClassOf(assignments []Assignment, resource string) string {
	for _, a := range assignments {
		if a.Resource == resource {
			return a.Class
		}
	}
	return SystemDefault
}

func compareHoldings(a, b Holding) int {
	return cmp.Or(
		strings.Compare(a.PodNamespace, b.PodNamespace),
		strings.Compare(a.PodName, b.PodName),
		strings.Compare(a.PodUID, b.PodUID),
		strings.Compare(a.Container, b.Container),
		strings.Compare(a.ID, b.ID),
	)
}
