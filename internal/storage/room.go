// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// maxVolumes is the CRD's maximum number of volumes of a node.
	maxVolumes = 1000
	// maxClasses is the maximum number of classes of a node's volumes. It limits the size of the object.
	maxClasses = 256
	// maxPath is the maximum length of a path, in bytes.
	maxPath = 256
)

// withinPods returns the mounts that a pod may have, and a problem for each mount that is left out.
//
// The result has first the mounts that matter most. The limits of a volume apply to its disk, for all containers of the pod. So one
// mount of each claim in each container is enough in most cases, and these mounts come before all others. Among equals, the mounts in
// the present spec (`before`) come first.
func withinPods(mounts []mount, before []nodeqosv1alpha1.ClaimedVolume) (kept []mount, problems []problem) {
	present := map[qos.Subject]int{} // 1 for each mount in the present spec
	for _, v := range before {
		present[v.Subject()] = 1
	}
	ranks, number := make(map[qos.Subject]int, len(mounts)), map[qos.Subject]int{}
	for _, m := range mounts {
		sameClaim := qos.Subject{PodUID: m.PodUID, Container: m.Container, Volume: m.Claim}
		ranks[m.Subject()] = number[sameClaim]
		number[sameClaim]++
	}
	slices.SortStableFunc(mounts, func(a, b mount) int {
		is, other := a.Subject(), b.Subject()
		return cmp.Or(cmp.Compare(ranks[is], ranks[other]), cmp.Compare(present[other], present[is]))
	})

	inPod := map[string]int{}
	for _, m := range mounts {
		switch {
		case len(m.Path) > maxPath:
			problems = append(problems, m.omitted("its path is longer than %d bytes", maxPath))
		case inPod[m.PodUID] == classes.MaxVolumes:
			problems = append(problems, m.omitted("its pod has more than %d volumes with limits", classes.MaxVolumes))
		default:
			inPod[m.PodUID]++
			kept = append(kept, m)
		}
	}
	return kept, problems
}

// withinNode returns the mounts that the object of a node can have, and a problem for each mount that is left out. Each namespace gets
// an equal share of the object.
func withinNode(mounts []mount) (kept []mount, problems []problem) {
	names := map[string]bool{}
	mounts = slices.DeleteFunc(mounts, func(m mount) bool {
		if !names[m.Class] && len(names) == maxClasses {
			problems = append(problems, m.omitted("the volumes of its node have more than %d classes", maxClasses))
			return true
		}
		names[m.Class] = true
		return false
	})

	kept, omitted := objectbudget.Fit(mounts, objectbudget.Volumes, maxVolumes, func(m mount) (string, int) {
		return m.claim.Namespace, objectbudget.VolumeSize(m.ClaimedVolume)
	})
	for _, m := range omitted {
		problems = append(problems, m.omitted("the NodeQOSResources object of its node has no room for more volumes of namespace %s", m.claim.Namespace))
	}
	return kept, problems
}

// omitted returns the problem of a mount that is left out.
func (m mount) omitted(format string, values ...any) problem {
	return problem{m.claim, fmt.Errorf("the volume gets no limits in container %s of the pod with UID %s: %s",
		m.Container, m.PodUID, fmt.Sprintf(format, values...))}
}

// limitsOfMounts returns the limits of the classes of mounts, by name. If a class has present and former limits, the present ones
// apply to all of its volumes.
func limitsOfMounts(mounts []mount) (all []nodeqosv1alpha1.VolumeClass) {
	limits := map[string]*classLimits{}
	for _, m := range mounts {
		if before := limits[m.class.Name]; before == nil || before.former {
			limits[m.class.Name] = m.class
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		all = append(all, limits[name].VolumeClass)
	}
	return all
}
