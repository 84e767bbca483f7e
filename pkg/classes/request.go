// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Source says where an assignment came from.
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
	// SourceNone goes with SystemDefault: nothing was asked, and there is no default.
	SourceNone Source = ""
	// SourceAdopted is what was found on something that ran already.
	SourceAdopted Source = "adopted"
	// SourceUpdate is a change of what runs.
	SourceUpdate Source = "update"
)

// Assignment is the class that a container or pod has of one resource.
type Assignment struct {
	Resource, Class string
	Source          Source
	// Key of the annotation that said it, if one did.
	Key string
}
