// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"slices"
	"strings"
)

// Keys of annotations.
const (
	// PodKey is the annotation of a pod with the requests of the pod itself and the defaults of its containers.
	PodKey = Domain + "/pod"
	// ContainerKeyPrefix is the prefix of a pod's annotation with the requests of one container. The name of the
	// container follows the prefix.
	ContainerKeyPrefix = "container." + Domain + "/"
	// AllocatedKeyPrefix is the prefix of the CRI annotations that report what the kubelet allocated to a container from the device
	// plugin. Only the kubelet can set these annotations. The value is resource=class. The key may have any text after the prefix.
	AllocatedKeyPrefix = "allocated." + Domain + "/"
)

// family has the annotation keys for one official resource that the KEP ("Pod annotations"), containerd and CRI-O have
// defined. The value of such an annotation is a class.
type family struct {
	resource string
	// offer is the index of the resource in the catalog. It is -1 if the catalog does not have the resource in container scope.
	offer int
	// cri is the key of a container annotation. Only the kubelet can set this annotation.
	cri string
	// kep and runtime have keys of the pod's annotations.
	kep, runtime podKeys
}

type podKeys struct {
	// container is the prefix of the key for one container. The name of the container follows the prefix.
	container string
	// pod is the key for all containers of the pod.
	pod string
}

func (k *podKeys) match(key string) bool { return key == k.pod || strings.HasPrefix(key, k.container) }

// families returns the keys of all official resources, without offers.
func families() [2]family {
	of := func(name string) family {
		kep, beta := name+".resources.kubernetes.io/", name+".resources.beta.kubernetes.io/"
		return family{
			resource: CanonicalResource(name),
			offer:    -1,
			cri:      "io.kubernetes.cri." + name + "-class",
			kep:      podKeys{kep + "container.", kep + "default"},
			runtime:  podKeys{beta + "container.", beta + "pod"},
		}
	}
	return [2]family{of("rdt"), of("blockio")}
}

// IsPodRequest reports whether an annotation of a pod with this key can request classes. Filters use it. Only Resolve
// decides what is requested.
func IsPodRequest(key string) bool {
	all := families()
	return key == PodKey || strings.HasPrefix(key, ContainerKeyPrefix) ||
		slices.ContainsFunc(all[:], func(f family) bool { return f.kep.match(key) || f.runtime.match(key) })
}

func isContainerRequest(key string) bool {
	all := families()
	return strings.HasPrefix(key, AllocatedKeyPrefix) || slices.ContainsFunc(all[:], func(f family) bool { return key == f.cri })
}
