// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// Holder is a container as the runtime reports it, a pod sandbox if `Container` is empty, or a volume of a container if `Volume` is
// not empty. A holder requests and holds classes. Backends enforce the classes on the holder's processes and cgroup.
type Holder struct {
	// ID is the runtime's ID of the container or of the pod sandbox. The ID of a volume is VolumeID.
	ID string
	// ContainerID is the runtime's ID of the container that has the volume. It is empty in container scope and in pod scope.
	ContainerID string
	// PodUID is the pod's UID, or the ID of its sandbox if the runtime reports no UID.
	PodNamespace, PodName, PodUID string
	// Container is the name of the container in the pod. It is empty in pod scope.
	Container string
	// Volume is the path in the container at which the volume is mounted. It is empty in container scope and in pod scope.
	Volume string
	// SandboxID is the runtime's ID of the pod sandbox.
	SandboxID string
	// RuntimeHandler is the handler that the pod's RuntimeClass names, e.g. "kata". It is empty for a pod without a RuntimeClass.
	RuntimeHandler string
	// PodLabels has the labels that the pod had at its creation, without those that the kubelet adds.
	PodLabels map[string]string
	// ImageDigest is the digest of the container's image, e.g. "sha256:…". It is empty in pod scope, and if the runtime does not report it.
	ImageDigest string
	// PodAnnotations and ContainerAnnotations may request classes.
	PodAnnotations, ContainerAnnotations map[string]string
	// CgroupsPath has the format of the OCI runtime spec: a path below the cgroup root, or "slice:prefix:name" with the
	// systemd driver. In pod scope and volume scope it is the pod's cgroup parent, which is a path or a slice.
	CgroupsPath string
	// PodCgroupsPath is the pod's cgroup parent.
	PodCgroupsPath string
	// Spec is the container as it was described to the runtime. It is empty in pod scope.
	Spec Spec
	// VolumeSources maps paths in the container to the sources of its volumes. It has the volumes that the kubelet
	// mounted for the pod, and block devices. It is nil in pod scope.
	VolumeSources map[string]VolumeSource
	// PID is the ID of the holder's first process in the host's PID namespace. It is 0 if there is no process yet, or
	// if its ID is unknown. In volume scope, PID is the PID of the container.
	PID int
	// Starting is true from the creation of the container's first process until this process executes its first
	// instruction. At that time the runtime has applied all settings, and the container has no other processes yet.
	Starting bool
}

// VolumeSource is the source of a volume on the node: a directory, or a block device without a filesystem.
type VolumeSource struct {
	// Dir is the directory of the node at which the kubelet mounted the volume. It is empty for a block device.
	Dir string
	// Device has the numbers of the block device, as "major:minor". It is empty for a directory.
	Device string
}

// Subject returns the identity under which the holder occupies slots.
func (h Holder) Subject() qos.Subject {
	return qos.Subject{PodUID: h.PodUID, Container: h.Container, Volume: h.Volume}
}

// Scope returns the scope of the classes that the holder can have.
func (h Holder) Scope() Scope {
	switch {
	case h.Volume != "":
		return VolumeScope
	case h.Container == "":
		return PodScope
	}
	return ContainerScope
}

// String returns the name of the holder for errors and logs.
func (h Holder) String() string {
	var parts []string
	if h.PodName != "" {
		parts = append(parts, "pod "+clip(h.PodNamespace)+"/"+clip(h.PodName))
	}
	if h.Container != "" {
		parts = append(parts, "container "+clip(h.Container))
	}
	if h.Volume != "" {
		parts = append(parts, "volume "+clip(h.Volume))
	}
	return strings.Join(parts, " ")
}

// OwnAnnotation returns an annotation of the container that the plugin itself has set. It returns none if the pod has the annotation, too,
// because a user may have added it, and some runtimes copy a pod's annotations to its containers.
func (h Holder) OwnAnnotation(key string) (value string, ok bool) {
	if _, forged := h.PodAnnotations[key]; forged {
		return "", false
	}
	value, ok = h.ContainerAnnotations[key]
	return value, ok
}

// CheckNew returns an error if a new container already has one of the plugin's own annotations. A restored container can have the
// annotations of its checkpoint image (containerd 2.2, CRI-O), which a user may have written.
func (h Holder) CheckNew(own ...string) error {
	for _, key := range own {
		if _, has := h.OwnAnnotation(key); has {
			return refuseHolder(h, badRequest("the container already has the annotation %s, which only qos-nri-plugin sets; "+
				"if it is restored from a checkpoint image, do not use this image", key))
		}
	}
	return nil
}

// WithoutUnusedAnnotations returns the holder with only those annotations that Resolve reads.
func (h Holder) WithoutUnusedAnnotations() Holder {
	h.PodAnnotations, h.ContainerAnnotations = maps.Clone(h.PodAnnotations), maps.Clone(h.ContainerAnnotations)
	for _, annotations := range []map[string]string{h.PodAnnotations, h.ContainerAnnotations} {
		maps.DeleteFunc(annotations, func(key, _ string) bool {
			return !IsPodRequest(key) && !isContainerRequest(key) && !strings.HasPrefix(key, VolumeKeyPrefix)
		})
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

// Source is the reason why an assignment has its class.
type Source string

const (
	// SourceContainer means that the container itself requested the class.
	SourceContainer Source = "container"
	// SourceAllocated means that the kubelet allocated the class to the container, as an extended resource.
	SourceAllocated Source = "allocated"
	// SourcePod means that the pod requested the class, for itself or as the default of its containers.
	SourcePod Source = "pod"
	// SourceDefault means that the class is the resource's DefaultClass.
	SourceDefault Source = "default"
	// SourceRule means that the class is that of a Rule of the resource. Assignment.Key is the name of the rule.
	SourceRule Source = "rule"
	// SourceClaim means that the PersistentVolumeClaim of a volume requested the class.
	SourceClaim Source = "claim"
	// SourceRuntimeHandler means that nothing is requested, and that pods of this runtime handler do not get the resource's
	// DefaultClass. The class is SystemDefault.
	SourceRuntimeHandler Source = "runtime-handler"
	// SourceNone means that nothing is requested and the resource has no default. The class is SystemDefault.
	SourceNone Source = ""
	// SourceAdopted means that a running container or pod was found in the class.
	SourceAdopted Source = "adopted"
	// SourceUpdate means that the class of a running container or pod was changed.
	SourceUpdate Source = "update"
)

// Assignment is the class that a container, pod or volume has, or requests, for one resource.
type Assignment struct {
	Resource, Class string
	Source          Source
	// Key is the key of the annotation or the name of the claim that requests the class, or the name of the rule that
	// assigns the class. It is empty if the class has another source.
	Key string
}

// IsRequested reports whether the pod requested the class, the kubelet allocated it, or a running container or pod was
// found in it or moved to it. It is false for defaults, rules and claims.
func (a Assignment) IsRequested() bool {
	switch a.Source {
	case SourceDefault, SourceRule, SourceClaim, SourceRuntimeHandler, SourceNone:
		return false
	}
	return true
}

// IsDefault reports whether the class files assign the class, because nothing was requested.
func (a Assignment) IsDefault() bool { return a.Source == SourceDefault || a.Source == SourceRule }

// Holding is a holder with its assignments, which are read-only.
type Holding struct {
	Holder
	Assignments []Assignment
}

// Class returns the class that the holder has for a resource.
func (h Holding) Class(resource string) string { return ClassOf(h.Assignments, resource) }

// ClassOf returns the class that the assignments have for a resource, or SystemDefault if they have none.
func ClassOf(assignments []Assignment, resource string) string {
	for _, a := range assignments {
		if a.Resource == resource {
			return a.Class
		}
	}
	return SystemDefault
}

// Overlay returns `base`, changed by the assignments in `over`. An assignment in `over` replaces the assignment of the same
// resource in `base`. If `base` has no such assignment, Overlay appends it.
func Overlay(base, over []Assignment) []Assignment {
	after := slices.Clone(base)
	for _, o := range over {
		i := slices.IndexFunc(after, func(a Assignment) bool { return a.Resource == o.Resource })
		if i < 0 {
			after = append(after, o)
		} else {
			after[i] = o
		}
	}
	return after
}
