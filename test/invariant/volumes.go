// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// volumes checks that a disk in the cgroup of a pod has each limit of the class that is reported for a volume, or a lower one.
func (c *check) volumes() {
	for _, pod := range c.Assignments.GetPods() {
		has := limitsOf(c.Kernel.Cgroups[pod.GetSandboxId()].Files)
		for _, ctr := range pod.GetContainers() {
			for _, volume := range ctr.GetVolumes() {
				for _, a := range volume.GetQosResources() {
					limits := c.Expect.Volumes[a.GetClass()]
					for _, kind := range slices.Sorted(maps.Keys(limits)) {
						if !hasLimit(has, kind, limits[kind]) {
							c.wrong("pod %s/%s container %s volume %s: reported in %s, but no disk of the pod has %s=%d", pod.GetNamespace(), pod.GetName(),
								ctr.GetName(), volume.GetPath(), classText(a.GetName(), a.GetClass()), kind, limits[kind])
						}
					}
				}
			}
		}
	}
}

// hasLimit reports whether a device has a limit of a kind that is not above most.
func hasLimit(limits map[string]string, kind string, most uint64) bool {
	for key, text := range limits {
		limit, err := strconv.ParseUint(text, 10, 64)
		if err == nil && limit <= most && strings.HasPrefix(key, "io.max ") && strings.HasSuffix(key, " "+kind) {
			return true
		}
	}
	return false
}
