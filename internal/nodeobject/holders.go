// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/api/qos"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/objectbudget"
)

// holders has the holders of all classes, and the settings of other programs, as far as they fit into the object.
type holders struct {
	lists map[classKey]*list

	found   []found
	reasons map[holderKey]string // why a holder's pod is to be evicted
	added   map[assignmentKey]bool
}

// list has the holders of a class or, for the system default, the foreign settings of the resource.
type list struct {
	holders []nodeqosv1alpha1.Holder
	foreign []nodeqosv1alpha1.ForeignSetting
	omitted int64 // the number of items that are left out
}

// found is a holder of a class, or a foreign setting of a resource.
type found struct {
	class     classKey
	namespace string
	item      any // a Holder or a ForeignSetting
}

type (
	classKey struct {
		scope           qosv1alpha1.Scope
		resource, class string
	}
	holderKey struct {
		qos.Subject
		resource string
	}
	assignmentKey struct {
		holderKey
		class string
	}
)

func newHolders(assignments *qosv1alpha1.ListAssignmentsResponse) *holders {
	h := &holders{lists: map[classKey]*list{}, reasons: map[holderKey]string{}, added: map[assignmentKey]bool{}}
	for _, e := range assignments.GetEvictions() {
		h.reasons[holderKey{e.Subject(), e.GetResource()}] = e.GetReason()
	}

	for _, pod := range assignments.GetPods() {
		holder := nodeqosv1alpha1.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName()}
		h.add(pod.GetUid(), holder, qosv1alpha1.Scope_SCOPE_POD, pod.GetQosResources())
		for _, c := range pod.GetContainers() {
			holder.Container = c.GetName()
			h.add(pod.GetUid(), holder, qosv1alpha1.Scope_SCOPE_CONTAINER, c.GetQosResources())
			for _, v := range c.GetVolumes() {
				h.add(pod.GetUid(), volumeOf(holder, v), qosv1alpha1.Scope_SCOPE_VOLUME, v.GetQosResources())
			}
		}
	}
	h.fit()
	return h
}

func volumeOf(container nodeqosv1alpha1.Holder, v *qosv1alpha1.VolumeAssignments) nodeqosv1alpha1.Holder {
	volume := container
	volume.Volume, volume.Device = v.GetPath(), v.GetDevice()
	if v.GetInForceSince() != nil {
		volume.Since = new(seconds(v.GetInForceSince().AsTime()))
	}
	return volume
}

// keepSince restores the times at which the limits of volumes came into force. It takes them from the object's present
// status, because a plugin that has restarted does not know these times.
func keepSince(volumes, before []nodeqosv1alpha1.QOSResourceInfo) {
	type key struct{ namespace, pod, container, volume, device, resource, class string }
	since := map[key]*metav1.Time{}
	each := func(resources []nodeqosv1alpha1.QOSResourceInfo, do func(k key, h *nodeqosv1alpha1.Holder)) {
		for _, r := range resources {
			for _, class := range r.Classes {
				for i := range class.Holders {
					h := &class.Holders[i]
					do(key{h.Namespace, h.Pod, h.Container, h.Volume, h.Device, r.Name, class.Name}, h)
				}
			}
		}
	}
	each(before, func(k key, h *nodeqosv1alpha1.Holder) { since[k] = h.Since })
	each(volumes, func(k key, h *nodeqosv1alpha1.Holder) {
		if h.Since == nil {
			h.Since = since[k]
		}
	})
}

// add adds a holder to each of its classes. The system default does not count as a class. If another program has set
// something in place of the system default, or for a volume, it adds this setting to the foreign settings. A restarted
// container and its predecessor count as one holder.
func (h *holders) add(podUID string, holder nodeqosv1alpha1.Holder, scope qosv1alpha1.Scope, assignments []*qosv1alpha1.Assignment) {
	for _, a := range assignments {
		owner := holderKey{qos.Subject{PodUID: podUID, Container: holder.Container, Volume: holder.Volume}, a.GetName()}
		assignment := assignmentKey{owner, a.GetClass()}
		if h.added[assignment] || a.GetClass() == "" && a.GetForeign() == "" {
			continue
		}

		h.added[assignment] = true
		if setting := a.GetForeign(); setting != "" {
			if holder.Volume != "" {
				setting = "volume " + holder.Volume + ": " + setting
			}
			h.found = append(h.found, found{classKey{scope, a.GetName(), ""}, holder.Namespace, nodeqosv1alpha1.ForeignSetting{
				Namespace: holder.Namespace, Pod: holder.Pod, Container: holder.Container, Setting: cut(setting, longestDescription),
			}})
		}
		if a.GetClass() == "" {
			continue
		}
		evicted := holderKey{owner.WithoutVolume(), a.GetName()} // an eviction because of a volume names the volume's container
		holder.Source, holder.Reason = a.SourceText(), h.reasons[evicted]
		h.found = append(h.found, found{classKey{scope, a.GetName(), a.GetClass()}, holder.Namespace, holder})
	}
}

// of returns the list of a class, which may be empty.
func (h *holders) of(class classKey) *list {
	if h.lists[class] == nil {
		h.lists[class] = &list{}
	}
	return h.lists[class]
}

// fit fills the lists with that part of the field `found` that fits into the object, and with at most MaxHolders items each.
func (h *holders) fit() {
	kept, omitted := objectbudget.Fit(h.found, objectbudget.Holders, objectbudget.Holders, func(f found) (string, int) {
		return f.namespace, objectbudget.Size(f.item)
	})

	byClass := map[classKey][]found{}
	for _, f := range kept {
		byClass[f.class] = append(byClass[f.class], f)
	}
	for _, all := range byClass {
		listed, more := objectbudget.Fit(all, nodeqosv1alpha1.MaxHolders, nodeqosv1alpha1.MaxHolders, func(f found) (string, int) {
			return f.namespace, 1
		})
		omitted = append(omitted, more...)
		for _, f := range listed {
			switch l := h.of(f.class); item := f.item.(type) {
			case nodeqosv1alpha1.Holder:
				l.holders = append(l.holders, item)
			case nodeqosv1alpha1.ForeignSetting:
				l.foreign = append(l.foreign, item)
			}
		}
	}
	for _, f := range omitted {
		h.of(f.class).omitted++
	}
}
