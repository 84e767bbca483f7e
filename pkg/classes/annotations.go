// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

// Keys of annotations.
const (
	// PodKey is the annotation of a pod with its own requests, and the defaults of its containers.
	PodKey = Domain + "/pod"
	// ContainerKeyPrefix and the name of a container make the annotation of a pod with that container's requests.
	ContainerKeyPrefix = "container." + Domain + "/"
	// AllocatedKeyPrefix begins the CRI container annotations by which the kubelet hands over what the device plugin
	// allocated; only the kubelet can set them. The value is resource=class, the rest of the key is free.
	AllocatedKeyPrefix = "allocated." + Domain + "/"
)

// family has the annotation keys of one official resource that others have defined: the KEP ("Pod annotations"),
// and containerd and CRI-O. The value is a class.
type family struct {
	resource string
	// offer is the index of the resource in the catalog; negative when it has no such resource in container scope.
	offer int
	// A container annotation, which only the kubelet can set.
	cri string
	// Pod annotations; those with a prefix end in the name of a container.
	container, pod string
	// The runtimes' pod annotations.
	betaContainer, betaPod string
}

func (c *Catalog) family(name string) family {
	resource := CanonicalResource(name)
	offer, ok := c.index[resource]
	if !ok || c.offers[offer].Scope == PodScope {
		offer = -1
	}
	return family{
		resource:      resource,
		offer:         offer,
		cri:           "io.kubernetes.cri." + name + "-class",
		container:     name + ".resources.kubernetes.io/container.",
		pod:           name + ".resources.kubernetes.io/default",
		betaContainer: name + ".resources.beta.kubernetes.io/container.",
		betaPod:       name + ".resources.beta.kubernetes.io/pod",
	}
}
