// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// owner has a class: a container, or, in pod scope, a pod, with an empty container. A restarted container is the same
// owner.
type owner struct{ namespace, pod, container string }

func (o owner) ofPod() owner {
	o.container = ""
	return o
}

// holdings is what kubelet has allocated.
type holdings struct {
	// pods are the pods that kubelet runs, as owners without a container.
	pods map[owner]bool
	// devices are those of each container, by extended resource. Init containers that end before the others start are not
	// among them.
	devices map[string]map[owner][]string
}

// readHoldings takes what kubelet answers.
func readHoldings(list *podresourcesv1.ListPodResourcesResponse) *holdings {
	h := &holdings{pods: map[owner]bool{}, devices: map[string]map[owner][]string{}}
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

// holders are those who hold devices of a class, in the class's scope.
func (h *holdings) holders(c class) (holders map[owner]bool, ids []string) {
	holders = map[owner]bool{}
	for holder, held := range h.devices[c.extended] {
		if c.podScope {
			holder = holder.ofPod()
		}
		holders[holder] = true
		ids = append(ids, held...)
	}
	return holders, ids
}

// ownersOf lists who has a class, and whether they have it by what kubelet allocated.
func ownersOf(c class, a *qosv1alpha1.ListAssignmentsResponse) map[owner]bool {
	owners := map[owner]bool{}
	add := func(o owner, assignments []*qosv1alpha1.Assignment) {
		for _, assigned := range assignments {
			if assigned.GetName() == c.resource && assigned.GetClass() == c.name {
				owners[o] = owners[o] || assigned.GetSource() == qosv1alpha1.Source_SOURCE_ALLOCATED
			}
		}
	}
	for _, pod := range a.GetPods() {
		o := owner{namespace: pod.GetNamespace(), pod: pod.GetName()}
		if c.podScope {
			add(o, pod.GetQosResources())
			continue
		}
		for _, ctr := range pod.GetContainers() {
			o.container = ctr.GetName()
			add(o, ctr.GetQosResources())
		}
	}
	return owners
}

// account compares who has a class with what kubelet has allocated. Of an unlimited class nobody is unaccounted for.
func account(c class, a *qosv1alpha1.ListAssignmentsResponse, h *holdings) usage {
	owners := ownersOf(c, a)
	holders, ids := h.holders(c)
	u := usage{allocated: distinct(ids)}
	u.accounted = len(u.allocated)
	u.restless = c.draining && u.accounted > 0
	if c.capacity == 0 {
		return u
	}
	for o, allocated := range owners {
		// Only kubelet allocates. It does not list the devices of an init container; they are its pod's until that ends.
		known := holders[o] || allocated && h.pods[o.ofPod()]
		if !known {
			u.unaccounted++
		}
	}
	u.restless = u.restless || u.unaccounted > 0 || u.accounted > c.size() || !within(holders, owners)
	return u
}

// accountAlone is account when kubelet does not say what it has allocated. It believes what the assignments say; known
// are devices that kubelet had allocated when it was asked last, or has since.
func accountAlone(c class, a *qosv1alpha1.ListAssignmentsResponse, known []string) usage {
	u := usage{allocated: distinct(known)}
	for _, allocated := range ownersOf(c, a) {
		switch {
		case allocated:
			u.accounted++
		case c.capacity != 0:
			u.unaccounted++
		}
	}
	return u
}

func within(holders, owners map[owner]bool) bool {
	for o := range holders {
		if _, ok := owners[o]; !ok {
			return false
		}
	}
	return true
}

func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	var list []string
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
	}
	return list
}
