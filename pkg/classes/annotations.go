// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "strings"

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
	f := familyOf(name)
	offer, ok := c.index[f.resource]
	if ok && c.offers[offer].Scope != PodScope {
		f.offer = offer
	}
	return f
}

// familyOf has the keys of the resource by this short name, without an offer of it.
func familyOf(name string) family {
	return family{
		resource:      CanonicalResource(name),
		offer:         -1,
		cri:           "io.kubernetes.cri." + name + "-class",
		container:     name + ".resources.kubernetes.io/container.",
		pod:           name + ".resources.kubernetes.io/default",
		betaContainer: name + ".resources.beta.kubernetes.io/container.",
		betaPod:       name + ".resources.beta.kubernetes.io/pod",
	}
}

// IsPodRequest says whether an annotation of a pod with this key can ask for classes. For what is kept or compared of
// a pod's annotations; what they ask for is Resolve's to say.
func IsPodRequest(key string) bool {
	if key == PodKey || strings.HasPrefix(key, ContainerKeyPrefix) {
		return true
	}
	for _, name := range familyNames() {
		f := familyOf(name)
		if key == f.pod || key == f.betaPod || strings.HasPrefix(key, f.container) || strings.HasPrefix(key, f.betaContainer) {
			return true
		}
	}
	return false
}

// isContainerRequest says whether an annotation that the kubelet sets on a container with this key can ask for classes.
func isContainerRequest(key string) bool {
	if strings.HasPrefix(key, AllocatedKeyPrefix) {
		return true
	}
	for _, name := range familyNames() {
		if key == familyOf(name).cri {
			return true
		}
	}
	return false
}

// familyNames are the short names of the resources with annotations of others.
func familyNames() []string { return []string{"rdt", "blockio"} }
