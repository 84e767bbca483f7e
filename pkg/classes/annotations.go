// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"slices"
	"strings"
)

// These are the keys, and prefixes of keys, of this project's annotations.
const (
	// PodKey is the key of the pod annotation that requests classes for the pod itself, and default classes for its containers.
	PodKey = Domain + "/pod"
	// ContainerKeyPrefix, followed by the name of a container, is the key of the pod annotation that requests classes
	// for this container.
	ContainerKeyPrefix = "container." + Domain + "/"
	// VolumeKeyPrefix, followed by the name of a container, is the key of the pod annotation that requests classes for volumes of
	// this container, as "path=class" pairs.
	VolumeKeyPrefix = "volumes." + Domain + "/"
	// EffectiveKey is the key of the pod annotation in which the publisher reports the classes of the pod, its containers and their
	// volumes. It requests nothing.
	EffectiveKey = Domain + "/classes"
	// AllocatedKeyPrefix is the prefix of CRI annotations that only the kubelet can set. Each has the value
	// resource=class, and names a class that the kubelet allocated to the container through the device plugin. Any text
	// may follow the prefix.
	AllocatedKeyPrefix = "allocated." + Domain + "/"
)

// family has the annotation keys for one of the KEP's own resources, k8s.io/rdt or k8s.io/blockio. The KEP ("Pod
// annotations"), containerd and CRI-O define these keys. The value of such an annotation is a class.
type family struct {
	resource string
	// offer is the index of the resource's offer in the catalog. It is -1 if the resource is not offered in container scope.
	offer int
	// cri is the key of a container annotation. Only the kubelet can set this annotation.
	cri string
	// kep has the KEP's keys of pod annotations. `runtime` has the keys that containerd and CRI-O have defined.
	kep, runtime podKeys
}

type podKeys struct {
	// container is the prefix of the key for one container. The key is the prefix followed by the name of the container.
	container string
	// pod is the key for all containers of the pod.
	pod string
}

func (k *podKeys) match(key string) bool { return key == k.pod || strings.HasPrefix(key, k.container) }

// families returns the families of k8s.io/rdt and k8s.io/blockio. NewCatalog sets the field `offer` of each family.
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

// IsPodRequest reports whether a pod annotation with this key can request classes. Callers use IsPodRequest to filter
// annotations by key. Resolve reads the values and returns the requested classes.
func IsPodRequest(key string) bool {
	all := families()
	return key == PodKey || strings.HasPrefix(key, ContainerKeyPrefix) ||
		slices.ContainsFunc(all[:], func(f family) bool { return f.kep.match(key) || f.runtime.match(key) })
}

func isContainerRequest(key string) bool {
	all := families()
	return strings.HasPrefix(key, AllocatedKeyPrefix) || slices.ContainsFunc(all[:], func(f family) bool { return key == f.cri })
}

// RequestKeyPrefixes returns prefixes of the keys of all annotations that Resolve reads.
func RequestKeyPrefixes() []string {
	prefixes := []string{PodKey, ContainerKeyPrefix, VolumeKeyPrefix, AllocatedKeyPrefix}
	for _, f := range families() {
		prefixes = append(prefixes, f.cri, f.kep.container, f.kep.pod, f.runtime.container, f.runtime.pod)
	}
	return prefixes
}

// maxPairsLength is the maximum length, in bytes, of an annotation's value. It is enough for about fifty pairs with the
// longest names.
const maxPairsLength = 16 << 10

// Pair is a request for a class of a resource. The empty class requests the system default.
type Pair struct {
	// Resource is the canonical name of the resource.
	Resource string
	Class    string
}

// ParsePairs reads "resource=class" pairs, separated by commas. White space around pairs is allowed. A resource may be
// repeated only with the same class. Errors wrap ErrBadRequest or ErrContradiction.
func ParsePairs(value string) ([]Pair, error) {
	var pairs []Pair
	classes := map[string]string{}
	err := eachPair(value, func(resource, class string) error {
		first, seen := classes[resource]
		if seen && first != class {
			return twoClassesOf(Assignment{Resource: resource, Class: class}, first)
		}
		if !seen {
			classes[resource] = class
			pairs = append(pairs, Pair{resource, class})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pairs, nil
}

// eachPair calls use(resource, class) for each "resource=class" pair in `value`, with the canonical name of the resource.
func eachPair(value string, use func(resource, class string) error) error {
	if len(value) > maxPairsLength {
		return badRequest("the request is longer than %d bytes", maxPairsLength)
	}
	rest := strings.TrimSpace(value)
	for more := rest != ""; more; {
		var pair string
		pair, rest, more = strings.Cut(rest, ",")
		resource, class, err := parsePair(strings.TrimSpace(pair))
		if err != nil {
			return err
		}
		if err := use(CanonicalResource(resource), class); err != nil {
			return err
		}
	}
	return nil
}

func parsePair(pair string) (resource, class string, err error) {
	resource, class, found := strings.Cut(pair, "=")
	switch {
	case pair == "":
		err = badRequest("the request has nothing before or after a comma; write resource=class[,resource=class...]")
	case !found || resource == "":
		err = badRequest("the request has %s, which is not of the form resource=class", quote(pair))
	case strings.ContainsAny(pair, " \t\r\n") || strings.Contains(class, "="):
		err = badRequest("the request has %s; write resource=class, without spaces and with only one \"=\"", quote(pair))
	}
	return resource, class, err
}

func badRequest(format string, args ...any) error {
	return refuse(Assignment{}, ErrBadRequest, format, args...)
}
