// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"slices"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// holdersBudget bounds the JSON of all holders of the object, in bytes. Kubernetes allows objects of about 1.5 MB; one that is written
// for every container start should be much smaller.
const holdersBudget = 512 << 10

// holdersOf returns the holders of a class, and the number of those that are left out.
type holdersOf func(resource, class string) (listed []nodeqosv1alpha1.Holder, omitted int64)

// holderList has the holders of all classes, by scope, and returns those of each class once.
type holderList struct {
	byPod, byContainer map[classKey][]nodeqosv1alpha1.Holder
	reasons            map[evictionKey]string
	budget             int
}

type (
	classKey    struct{ resource, class string }
	evictionKey struct{ uid, container, resource string }
)

func newHolderList(assignments *qosv1alpha1.ListAssignmentsResponse) *holderList {
	list := &holderList{
		byPod: map[classKey][]nodeqosv1alpha1.Holder{}, byContainer: map[classKey][]nodeqosv1alpha1.Holder{},
		reasons: map[evictionKey]string{}, budget: holdersBudget,
	}
	for _, e := range assignments.GetEvictions() {
		list.reasons[evictionKey{e.GetPodUid(), e.GetContainer(), e.GetResource()}] = e.GetReason()
	}

	for _, pod := range assignments.GetPods() {
		list.add(list.byPod, pod, "", pod.GetQosResources())

		// A restarted container is listed beside its predecessor; both are one holder.
		seen := map[classKey][]nodeqosv1alpha1.Holder{}
		for _, container := range pod.GetContainers() {
			list.add(seen, pod, container.GetName(), container.GetQosResources())
		}
		for key, holders := range seen {
			list.byContainer[key] = append(list.byContainer[key], slices.CompactFunc(holders, sameContainer)...)
		}
	}
	return list
}

func sameContainer(a, b nodeqosv1alpha1.Holder) bool { return a.Container == b.Container }

// add adds a pod, or a container of it, to the classes that it has. The system default is no class.
func (l *holderList) add(
	to map[classKey][]nodeqosv1alpha1.Holder, pod *qosv1alpha1.PodAssignments, container string, assignments []*qosv1alpha1.Assignment,
) {
	for _, a := range assignments {
		if a.GetClass() == "" {
			continue
		}
		key := classKey{a.GetName(), a.GetClass()}
		to[key] = append(to[key], nodeqosv1alpha1.Holder{
			Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: container,
			Source: a.GetSource().Name(), Reason: l.reasons[evictionKey{pod.GetUid(), container, a.GetName()}],
		})
	}
}

func (l *holderList) pods(resource, class string) ([]nodeqosv1alpha1.Holder, int64) {
	return l.take(l.byPod[classKey{resource, class}])
}

func (l *holderList) containers(resource, class string) ([]nodeqosv1alpha1.Holder, int64) {
	return l.take(l.byContainer[classKey{resource, class}])
}

// take returns as many holders as the bound of a class and the rest of the object's budget allow.
func (l *holderList) take(holders []nodeqosv1alpha1.Holder) (listed []nodeqosv1alpha1.Holder, omitted int64) {
	end := min(len(holders), nodeqosv1alpha1.MaxHolders)
	for i, h := range holders[:end] {
		size := len(`{"namespace":"","pod":"","container":"","source":"","reason":""},`) +
			len(h.Namespace) + len(h.Pod) + len(h.Container) + len(h.Source) + len(h.Reason)
		if size > l.budget {
			end = i
			break
		}
		l.budget -= size
	}
	return holders[:end:end], int64(len(holders) - end)
}
