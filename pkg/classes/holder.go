// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
)

// Owner has a slot of a class: a container of a pod by its name, or with Container empty the pod. It outlives container
// IDs, so a restarted container never competes with its dead predecessor.
type Owner struct{ PodUID, Container string }

func (o Owner) String() string {
	if o.Container == "" {
		return "pod " + o.PodUID
	}
	return fmt.Sprintf("container %q of pod %s", o.Container, o.PodUID)
}

// Holder is a container, or with Container empty a pod sandbox, as the runtime shows it: it requests classes, holds
// them, and has the processes and the cgroup on which backends enforce them.
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
	// PID is that of the first process in the host's PID namespace; 0 when there is none yet, or none is known.
	PID int
	// Starting is true from the creation of the container's first process to its first instruction: whatever the
	// runtime had to set is set by then, and nothing has been forked yet.
	Starting bool
}

// Owner returns what has the holder's slots.
func (h Holder) Owner() Owner { return Owner{h.PodUID, h.Container} }

// Scope returns the scope of the resources that the holder can have classes of.
func (h Holder) Scope() Scope {
	if h.Container == "" {
		return PodScope
	}
	return ContainerScope
}

// String names the holder in errors and logs.
func (h Holder) String() string {
	return strings.TrimSuffix(subject(h.PodNamespace, h.PodName, h.Container), ": ")
}

// WithoutUnusedAnnotations returns the holder with those annotations only that Resolve reads.
func (h Holder) WithoutUnusedAnnotations() Holder {
	h.PodAnnotations, h.ContainerAnnotations = requestsAmong(h.PodAnnotations), requestsAmong(h.ContainerAnnotations)
	return h
}

func requestsAmong(annotations map[string]string) map[string]string {
	requests := maps.Clone(annotations)
	maps.DeleteFunc(requests, func(key, _ string) bool { return !IsPodRequest(key) && !isContainerRequest(key) })
	return requests
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

// Holding is a holder with its assignments, which are read-only.
type Holding struct {
	Holder
	Assignments []Assignment
}

// Class returns the class of a resource that the holder is assigned.
func (h Holding) Class(resource string) string { return ClassOf(h.Assignments, resource) }

func compareHoldings(a, b Holding) int {
	return cmp.Or(
		strings.Compare(a.PodNamespace, b.PodNamespace),
		strings.Compare(a.PodName, b.PodName),
		strings.Compare(a.PodUID, b.PodUID),
		strings.Compare(a.Container, b.Container),
		strings.Compare(a.ID, b.ID),
	)
}
