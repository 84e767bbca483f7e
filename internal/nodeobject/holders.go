// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"slices"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// holdersBudget bounds the JSON of all holders of the object together, in bytes. An object of Kubernetes may have about 1.5 MB; one that
// is written for every container that starts should have much less.
const holdersBudget = 512 << 10

// holdersOf lists the holders of a class in their order, and says how many are left out.
type holdersOf func(resource, class string) (listed []nodeqosv1alpha1.Holder, omitted int64)

// holderList has the holders of all classes, by scope, and hands each out once.
type holderList struct {
	byPod, byContainer map[classKey][]nodeqosv1alpha1.Holder
	budget             int
}

type classKey struct{ resource, class string }

func newHolderList(assignments *qosv1alpha1.ListAssignmentsResponse) *holderList {
	list := &holderList{
		byPod: map[classKey][]nodeqosv1alpha1.Holder{}, byContainer: map[classKey][]nodeqosv1alpha1.Holder{}, budget: holdersBudget,
	}
	for _, pod := range assignments.GetPods() {
		holder := nodeqosv1alpha1.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName()}
		add(list.byPod, pod.GetQosResources(), holder)
		// A restarted container is there beside its predecessor; both are one holder.
		seen := map[classKey][]nodeqosv1alpha1.Holder{}
		for _, container := range pod.GetContainers() {
			holder.Container = container.GetName()
			add(seen, container.GetQosResources(), holder)
		}
		for key, holders := range seen {
			list.byContainer[key] = append(list.byContainer[key], slices.Compact(holders)...)
		}
	}
	return list
}

// add adds a holder to the classes that it has. Who has the system default has no class.
func add(to map[classKey][]nodeqosv1alpha1.Holder, assignments []*qosv1alpha1.Assignment, holder nodeqosv1alpha1.Holder) {
	for _, a := range assignments {
		if a.GetClass() != "" {
			key := classKey{a.GetName(), a.GetClass()}
			to[key] = append(to[key], holder)
		}
	}
}

func (l *holderList) pods(resource, class string) ([]nodeqosv1alpha1.Holder, int64) {
	return l.take(l.byPod[classKey{resource, class}])
}

func (l *holderList) containers(resource, class string) ([]nodeqosv1alpha1.Holder, int64) {
	return l.take(l.byContainer[classKey{resource, class}])
}

// take gives as many as the bound of a class and what is left of the object's budget allow.
func (l *holderList) take(holders []nodeqosv1alpha1.Holder) (listed []nodeqosv1alpha1.Holder, omitted int64) {
	end := min(len(holders), nodeqosv1alpha1.MaxHolders)
	for i, h := range holders[:end] {
		size := len(`{"namespace":"","pod":"","container":""},`) + len(h.Namespace) + len(h.Pod) + len(h.Container)
		if size > l.budget {
			end = i
			break
		}
		l.budget -= size
	}
	return holders[:end:end], int64(len(holders) - end)
}
