// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"maps"
	"slices"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// owner has a class: a container, or, in pod scope, a pod, with an empty container. A restarted container is the same
// owner. The UID of the pod is empty where kubelet tells: it tells names alone.
type owner struct{ namespace, pod, uid, container string }

// ofPod is the pod, as kubelet tells it.
func (o owner) ofPod() owner {
	o.uid, o.container = "", ""
	return o
}

// told is the owner as kubelet tells it.
func (o owner) told() owner {
	o.uid = ""
	return o
}

// holdings is what kubelet has allocated.
type holdings struct {
	// pods are the pods that kubelet runs, as owners without a container.
	pods map[owner]bool
	// devices are those of each container, by extended resource. Init containers that end before the others start are not
	// among them.
	devices map[string]map[owner][]string
	// granted are device IDs that were handed out, and that kubelet never told since, by extended resource.
	granted map[string][]string
	// remembered is whether devices are of pods that kubelet does not tell; unsure whether there may be more of these;
	// settling whether kubelet may have started just now.
	remembered, unsure, settling bool
}

func newHoldings() *holdings {
	return &holdings{pods: map[owner]bool{}, devices: map[string]map[owner][]string{}, granted: map[string][]string{}}
}

// readHoldings takes what kubelet answers.
func readHoldings(list *podresourcesv1.ListPodResourcesResponse) *holdings {
	h := newHoldings()
	for _, pod := range list.GetPodResources() {
		h.pods[owner{namespace: pod.GetNamespace(), pod: pod.GetName()}] = true
		for _, ctr := range pod.GetContainers() {
			holder := owner{namespace: pod.GetNamespace(), pod: pod.GetName(), container: ctr.GetName()}
			for _, d := range ctr.GetDevices() {
				h.add(d.GetResourceName(), holder, d.GetDeviceIds())
			}
		}
	}
	return h
}

func (h *holdings) add(resource string, holder owner, ids []string) {
	if h.devices[resource] == nil {
		h.devices[resource] = map[owner][]string{}
	}
	h.devices[resource][holder] = append(h.devices[resource][holder], ids...)
}

// holders are the containers that hold devices of a class, and their pods.
func (h *holdings) holders(c class) map[owner]bool {
	holders := map[owner]bool{}
	for holder := range h.devices[c.extended] {
		holders[holder], holders[holder.ofPod()] = true, true
	}
	return holders
}

// ownersOf lists who has a class, or another one that is published by the same name, and whether they have it by what
// kubelet allocated.
func ownersOf(c class, a *qosv1alpha1.ListAssignmentsResponse) map[owner]bool {
	owners := map[owner]bool{}
	for _, pod := range a.GetPods() {
		o := owner{namespace: pod.GetNamespace(), pod: pod.GetName(), uid: pod.GetUid()}
		add := func(assignments []*qosv1alpha1.Assignment, podScope bool) {
			for _, assigned := range assignments {
				if c.is(assigned.GetName(), assigned.GetClass(), podScope) {
					owners[o] = owners[o] || assigned.GetSource() == qosv1alpha1.Source_SOURCE_ALLOCATED
				}
			}
		}
		add(pod.GetQosResources(), true)
		for _, ctr := range pod.GetContainers() {
			o.container = ctr.GetName()
			add(ctr.GetQosResources(), false)
		}
	}
	return owners
}

// unmatched lists who has a class and holds no device of it, ordered. A device is matched with one of several pods of a
// name, first with those that have the class by what kubelet allocated.
func unmatched(owners, holders map[owner]bool) []owner {
	matched := map[owner]bool{}
	var list []owner
	for _, allocated := range []bool{true, false} {
		for _, o := range slices.SortedFunc(maps.Keys(owners), byName) {
			if owners[o] != allocated {
				continue
			}
			if told := o.told(); holders[told] && !matched[told] {
				matched[told] = true
				continue
			}
			list = append(list, o)
		}
	}
	return list
}

// account compares who has a class with what kubelet has allocated. Of an unlimited class nobody is unaccounted for.
//
// Only kubelet allocates: whoever has the class by that is known to it, also when it does not tell. It does not tell the
// devices of an init container, which are its pod's until that ends, and after its start not all pods.
func account(c class, a *qosv1alpha1.ListAssignmentsResponse, h *holdings) usage {
	owners, holders := ownersOf(c, a), h.holders(c)
	u := usage{allocated: idsOf(h.devices[c.extended]), granted: h.granted[c.extended]}
	u.accounted = len(u.allocated)
	for _, o := range unmatched(owners, holders) {
		switch {
		case !owners[o] && c.capacity != 0:
			u.unaccounted++
		case owners[o]:
			u.silent++
			u.restless = u.restless || !h.pods[o.ofPod()]
		}
	}
	u.restless = u.restless || c.draining && u.accounted > 0 || u.unaccounted > 0 || h.remembered || h.unsure ||
		h.settling && len(u.granted) > 0 ||
		c.capacity != 0 && (u.accounted > c.size() || !within(h.devices[c.extended], owners))
	switch {
	case h.unsure: // any device may be allocated
		u.unaccounted, u.silent = 0, max(u.silent, len(u.granted))
	case h.settling:
		u.silent = len(u.granted)
	default:
		u.silent = min(u.silent, len(u.granted))
	}
	return u
}

// accountAlone is account when kubelet does not say what it has allocated. It believes what the assignments say, and the
// devices that kubelet told when it was asked last, or was given since. The source of a class of pod scope does not say
// that kubelet allocated it: a device of its pod does.
func accountAlone(c class, a *qosv1alpha1.ListAssignmentsResponse, h *holdings) usage {
	owners, holders := ownersOf(c, a), h.holders(c)
	u := usage{allocated: append(idsOf(h.devices[c.extended]), h.granted[c.extended]...), restless: true}
	left := len(h.granted[c.extended])
	for _, allocated := range []bool{true, false} { // devices of unknown pods are first those of whom we know that they have one
		for o, is := range owners {
			switch {
			case is != allocated:
			case holders[o.told()]:
				u.accounted++
			case is:
				u.accounted++
				left--
			case o.container == "" && left > 0:
				u.accounted++
				left--
			case c.capacity != 0:
				u.unaccounted++
			}
		}
	}
	if h.settling {
		u.accounted = max(u.accounted, len(u.allocated))
	}
	if h.unsure {
		u.unaccounted = 0
	}
	return u
}

// within is whether each container that holds a device is, or is of, an owner.
func within(devices map[owner][]string, owners map[owner]bool) bool {
	have := map[owner]bool{}
	for o := range owners {
		have[o.told()] = true
	}
	for holder := range devices {
		if !have[holder] && !have[holder.ofPod()] {
			return false
		}
	}
	return true
}
