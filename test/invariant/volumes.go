// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package invariant

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// volumes checks the limits on the devices of each volume in the cgroup of the pod. Each limit must be the limit of the
// volume's class, or lower.
func (c *check) volumes() {
	for _, pod := range c.Assignments.GetPods() {
		has := limitsOf(c.Kernel.Cgroups[pod.GetSandboxId()].Files)
		for _, ctr := range pod.GetContainers() {
			for _, volume := range ctr.GetVolumes() {
				for _, a := range volume.GetQosResources() {
					for _, key := range slices.Sorted(maps.Keys(c.volumeLimits(volume, a.GetClass()))) {
						most := c.volumeLimits(volume, a.GetClass())[key]
						if limit, err := strconv.ParseUint(has[key], 10, 64); err != nil || limit > most {
							c.wrong("pod %s/%s container %s volume %s: reported in %s with %s = %d, but has %q", pod.GetNamespace(), pod.GetName(),
								ctr.GetName(), volume.GetPath(), classText(a.GetName(), a.GetClass()), key, most, has[key])
						}
					}
				}
			}
		}
	}
}

// volumeLimits returns the limits that a class sets on the devices of a volume. It has the same keys as limitsOf.
func (c *check) volumeLimits(volume *qosv1alpha1.VolumeAssignments, class string) map[string]uint64 {
	limits := map[string]uint64{}
	for kind, limit := range c.Expect.Volumes[class] {
		for device := range strings.SplitSeq(volume.GetDevice(), ",") {
			limits["io.max "+device+" "+kind] = limit
		}
	}
	return limits
}

// hasVolumeOn reports whether a pod has a volume with a class on a device.
func (c *check) hasVolumeOn(pod *qosv1alpha1.PodAssignments, device string) bool {
	return slices.ContainsFunc(pod.GetContainers(), func(ctr *qosv1alpha1.ContainerAssignments) bool {
		return slices.ContainsFunc(ctr.GetVolumes(), func(volume *qosv1alpha1.VolumeAssignments) bool {
			return slices.Contains(strings.Split(volume.GetDevice(), ","), device)
		})
	})
}
