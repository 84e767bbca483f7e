// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// usage has kubelet's allocations of a class, compared with the owners of the class.
type usage struct {
	// allocated has the devices that kubelet has allocated, without duplicates. The publisher keeps these
	// devices in the list that it sends to kubelet.
	allocated []string
	// accounted is the number of devices that kubelet has allocated. If kubelet does not answer, this number is
	// computed from the assignments and the cached devices.
	accounted int
	// granted has the devices that Allocate has granted and kubelet has not reported. The latest grants are first.
	// `unreported` is the number of these devices that kubelet may have allocated, e.g. to init containers.
	granted    []string
	unreported int
	// unaccounted is the number of owners that have a class with a capacity but have no device of that class.
	unaccounted int
	// needsPoll is true if kubelet's answer may soon change without an event that reports the change.
	needsPoll bool
}

// ownersOf returns the containers and pods that have the class `c` or a class in c.others. The map's value is true for an
// owner that has the class because kubelet allocated a device to it.
func ownersOf(c class, assignments *qosv1alpha1.ListAssignmentsResponse) map[owner]bool {
	owners := map[owner]bool{}
	for _, pod := range assignments.GetPods() {
		o := owner{namespace: pod.GetNamespace(), pod: pod.GetName(), Subject: qos.Subject{PodUID: pod.GetUid()}}
		add := func(assignments []*qosv1alpha1.Assignment, podScope bool) {
			for _, assigned := range assignments {
				if c.is(assigned.GetName(), assigned.GetClass(), podScope) {
					owners[o] = owners[o] || assigned.GetSource() == qosv1alpha1.Source_SOURCE_ALLOCATED && !classes.AllocatedByClaim(assigned.GetRequestedBy())
				}
			}
		}

		add(pod.GetQosResources(), true)
		for _, ctr := range pod.GetContainers() {
			o.Container = ctr.GetName()
			add(ctr.GetQosResources(), false)
		}
	}
	return owners
}

// podsWithDevices returns the pods that may have devices of a class: those with a container to which kubelet allocated one, and those that
// have the class in pod scope.
func podsWithDevices(c class, assignments *qosv1alpha1.ListAssignmentsResponse) map[owner]bool {
	pods := map[owner]bool{}
	for o, allocated := range ownersOf(c, assignments) {
		if allocated || o.Container == "" {
			pods[o.podInKubelet()] = true
		}
	}
	return pods
}

// account compares the owners of a class with kubelet's allocations. If kubelet allocated the class to an owner,
// the owner counts as accounted for, even if kubelet does not report the owner's device. Kubelet does not report the
// devices of init containers that run to completion, and may report no devices when it has just started.
//
// Kubelet reports pods by name only. If several owners have the same name, a device matches only one of them, preferably
// an owner whose class kubelet allocated.
func account(c class, assignments *qosv1alpha1.ListAssignmentsResponse, a *allocations) usage {
	owners, holders := ownersOf(c, assignments), a.holders(c)
	u := usage{allocated: deviceIDs(a.devices[c.extended]), granted: a.granted[c.extended]}
	u.accounted = len(u.allocated)

	podMissing, matched := false, map[owner]bool{}
	for _, preferred := range []bool{true, false} {
		for o, allocated := range owners {
			switch name := o.inKubelet(); {
			case allocated != preferred:
			case holders[name] && !matched[name]:
				matched[name] = true
			case allocated:
				u.unreported++
				podMissing = podMissing || !a.pods[o.podInKubelet()]
			case c.capacity != 0:
				u.unaccounted++
			}
		}
	}

	u.needsPoll = podMissing || u.unaccounted > 0 || a.fromCache || a.incomplete ||
		c.draining && u.accounted > 0 ||
		a.starting && len(u.granted) > 0 ||
		c.capacity != 0 && (u.accounted > c.size() || !ownersInclude(owners, a.devices[c.extended]))

	switch {
	case a.incomplete: // kubelet may have allocated any device without having reported it
		u.unaccounted, u.unreported = 0, max(u.unreported, len(u.granted))
	case a.starting:
		u.unreported = len(u.granted)
	default:
		u.unreported = min(u.unreported, len(u.granted))
	}
	return u
}

// accountFromCache is used instead of the function `account` while kubelet does not answer. An owner counts as accounted
// for if it has a cached device or if kubelet allocated the class to it. A pod that owns a class of pod scope also
// counts if there is a granted device that no other owner uses.
func accountFromCache(c class, assignments *qosv1alpha1.ListAssignmentsResponse, a *allocations) usage {
	owners, holders := ownersOf(c, assignments), a.holders(c)
	granted := a.granted[c.extended]
	u := usage{allocated: append(deviceIDs(a.devices[c.extended]), granted...), needsPoll: true}

	left := len(granted)
	for _, allocated := range []bool{true, false} { // first the owners that certainly have a device
		for o, is := range owners {
			switch {
			case is != allocated:
			case holders[o.inKubelet()]:
				u.accounted++
			case is, o.Container == "" && left > 0:
				u.accounted++
				left--
			case c.capacity != 0:
				u.unaccounted++
			}
		}
	}

	if a.starting {
		u.accounted = max(u.accounted, len(u.allocated))
	}
	if a.incomplete {
		u.unaccounted = 0
	}
	return u
}

// ownersInclude reports whether every container with devices is an owner, or belongs to a pod that is an owner.
func ownersInclude(owners map[owner]bool, devices map[owner][]string) bool {
	names := map[owner]bool{}
	for o := range owners {
		names[o.inKubelet()] = true
	}
	for holder := range devices {
		if !names[holder] && !names[holder.podInKubelet()] {
			return false
		}
	}
	return true
}
