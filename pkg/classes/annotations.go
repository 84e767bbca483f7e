// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"slices"
	"strings"
)

// Keys of annotations.
const (
	// PodKey is the annotation of a pod with its own requests, and the defaults of its containers.
	PodKey = Domain + "/pod"
	// ContainerKeyPrefix and the name of a container make the annotation of a pod with that container's requests.
	ContainerKeyPrefix = "container." + Domain + "/"
	// AllocatedKeyPrefix is the prefix of the CRI annotations that report what the kubelet allocated to a container from the device
	// plugin. Only the kubelet can set them. The value is resource=class. The rest of the key is arbitrary.
	AllocatedKeyPrefix = "allocated." + Domain + "/"
)

// family has the annotation keys that others have defined for one official resource: the KEP ("Pod annotations"), containerd and
// CRI-O. The value of such an annotation is a class.
type family struct {
	resource string
	// offer is the index of the resource in the catalog; -1 when the catalog does not have it in container scope.
	offer int
	// cri is a container annotation, which only the kubelet can set.
	cri string
	// kep and runtime are annotations of the pod.
	kep, runtime podKeys
}

type podKeys struct {
	// container is the prefix of the key for one container, which ends in the container's name.
	container string
	// pod is the key for all containers.
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

// IsPodRequest reports whether an annotation of a pod with this key can request classes. It is for filters; only Resolve
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
