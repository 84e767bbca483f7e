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

// Request is what is known of a container, or with Container empty of a pod, when it is created.
type Request struct {
	PodNamespace, PodName, PodUID        string
	Container                            string
	PodAnnotations, ContainerAnnotations map[string]string
}

// Kept is the request without the annotations that Resolve does not look at.
func (r Request) Kept() Request {
	r.PodAnnotations, r.ContainerAnnotations = requestsAmong(r.PodAnnotations), requestsAmong(r.ContainerAnnotations)
	return r
}

func requestsAmong(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if IsPodRequest(key) || isContainerRequest(key) {
			kept[key] = value
		}
	}
	return kept
}

// Size is that of the annotations, in bytes.
func (r Request) Size() (bytes int) {
	for _, annotations := range []map[string]string{r.PodAnnotations, r.ContainerAnnotations} {
		for key, value := range annotations {
			bytes += len(key) + len(value)
		}
	}
	return bytes
}
