// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// holdersBudget limits the size of the JSON of all holders in the object, in bytes. Kubernetes allows objects of
// about 1.5 MB. This object must be much smaller, because it may be written after every container start.
const holdersBudget = 512 << 10

// holders has the holders of all classes, and the part of holdersBudget that is not used yet.
type holders struct {
	byClass map[classKey][]nodeqosv1alpha1.Holder
	budget  int
	reasons map[holderKey]string // why a holder's pod is to be evicted
	added   map[assignmentKey]bool
}

type (
	classKey struct {
		scope           qosv1alpha1.Scope
		resource, class string
	}
	holderKey     struct{ uid, container, resource string }
	assignmentKey struct {
		holderKey
		class string
	}
)

func newHolders(assignments *qosv1alpha1.ListAssignmentsResponse) *holders {
	h := &holders{
		byClass: map[classKey][]nodeqosv1alpha1.Holder{}, budget: holdersBudget,
		reasons: map[holderKey]string{}, added: map[assignmentKey]bool{},
	}
	for _, e := range assignments.GetEvictions() {
		h.reasons[holderKey{e.GetPodUid(), e.GetContainer(), e.GetResource()}] = e.GetReason()
	}

	for _, pod := range assignments.GetPods() {
		h.add(pod, qosv1alpha1.Scope_SCOPE_POD, "", pod.GetQosResources())
		for _, c := range pod.GetContainers() {
			h.add(pod, qosv1alpha1.Scope_SCOPE_CONTAINER, c.GetName(), c.GetQosResources())
		}
	}
	return h
}

// add adds a pod, or one of its containers, as a holder to each of its classes. The system default does not count as
// a class. A restarted container and its predecessor count as one holder.
func (h *holders) add(pod *qosv1alpha1.PodAssignments, scope qosv1alpha1.Scope, container string, assignments []*qosv1alpha1.Assignment) {
	for _, a := range assignments {
		holder := holderKey{pod.GetUid(), container, a.GetName()}
		assignment := assignmentKey{holder, a.GetClass()}
		if a.GetClass() == "" || h.added[assignment] {
			continue
		}

		h.added[assignment] = true
		key := classKey{scope, a.GetName(), a.GetClass()}
		h.byClass[key] = append(h.byClass[key], nodeqosv1alpha1.Holder{
			Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: container,
			Source: a.GetSource().Name(), Reason: h.reasons[holder],
		})
	}
}

func (h *holders) take(key classKey) (listed []nodeqosv1alpha1.Holder, omitted int64) {
	all := h.byClass[key]
	end := min(len(all), nodeqosv1alpha1.MaxHolders)
	for i, holder := range all[:end] {
		size := len(`{"namespace":"","pod":"","container":"","source":"","reason":""},`) +
			len(holder.Namespace) + len(holder.Pod) + len(holder.Container) + len(holder.Source) + len(holder.Reason)
		if size > h.budget {
			end = i
			break
		}
		h.budget -= size
	}
	return all[:end:end], int64(len(all) - end)
}
