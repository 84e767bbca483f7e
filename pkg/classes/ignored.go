// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxIgnored is the maximum number of annotations that Ignored returns. It bounds the memory for a pod with many
// annotations.
const maxIgnored = 8

// IgnoredAnnotation is a pod annotation that requests nothing, although its key has the domain of this project or of the KEP.
type IgnoredAnnotation struct {
	Key string
	// Container is the container that the key names. It is empty if the key names no container.
	Container string
	// Problem is one line for users. It names the key, the reason and the remedy.
	Problem string
}

// Ignored returns at most maxIgnored annotations of a pod that look like requests but request nothing, sorted by key:
//
//   - annotations for a container that the pod does not have, and
//   - annotations with an unknown key in the domain of this project or of the KEP.
//
// Annotations whose keys belong to the kubelet or a container runtime are left out. The parameter `containers` has the
// names of the pod's containers.
func Ignored(annotations map[string]string, containers []string) []IgnoredAnnotation {
	all := families()
	whole := []string{PodKey, EffectiveKey, all[0].kep.pod, all[1].kep.pod}
	prefixes := []string{ContainerKeyPrefix, VolumeKeyPrefix, all[0].kep.container, all[1].kep.container}

	var ignored []IgnoredAnnotation
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if len(ignored) == maxIgnored || !ofRequests(key) || slices.Contains(whole, key) {
			continue
		}
		container, named := cutAnyPrefix(key, prefixes)
		switch {
		case named && slices.Contains(containers, container):
		case named:
			ignored = append(ignored, IgnoredAnnotation{key, container, fmt.Sprintf(
				"annotation %s names no container of the pod; its containers are %s", clipKey(key), list(containers))})
		default:
			ignored = append(ignored, IgnoredAnnotation{key, "", fmt.Sprintf(
				"annotation %s is not known; write %s, %s<container> or %s<container>", clipKey(key), PodKey, ContainerKeyPrefix, VolumeKeyPrefix)})
		}
	}
	return ignored
}

func cutAnyPrefix(key string, prefixes []string) (rest string, found bool) {
	for _, prefix := range prefixes {
		if rest, found = strings.CutPrefix(key, prefix); found {
			return rest, true
		}
	}
	return "", false
}

// ofRequests reports whether a key has the domain of this project or of the KEP. Keys that only the kubelet sets do not
// count.
func ofRequests(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok || strings.HasPrefix(key, AllocatedKeyPrefix) {
		return false
	}
	all := families()
	return domain == Domain || strings.HasSuffix(domain, "."+Domain) ||
		slices.ContainsFunc(all[:], func(f family) bool { return strings.HasPrefix(f.kep.pod, domain+"/") })
}
