// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// holdersBudget limits the size of the JSON of all holders and foreign settings in the object, in bytes. Kubernetes allows objects of
// about 1.5 MB. This object must be much smaller, because it may be written after every container start.
const holdersBudget = 512 << 10

// holders has the holders of all classes, and the part of holdersBudget that is not used yet.
type holders struct {
	byClass map[classKey][]nodeqosv1alpha1.Holder
	foreign map[resourceKey][]nodeqosv1alpha1.ForeignSetting
	budget  int
	reasons map[holderKey]string // why a holder's pod is to be evicted
	added   map[assignmentKey]bool
}

type (
	classKey struct {
		resourceKey
		class string
	}
	resourceKey struct {
		scope qosv1alpha1.Scope
		name  string
	}
	holderKey     struct{ uid, container, volume, resource string }
	assignmentKey struct {
		holderKey
		class string
	}
)

func newHolders(assignments *qosv1alpha1.ListAssignmentsResponse) *holders {
	h := &holders{
		byClass: map[classKey][]nodeqosv1alpha1.Holder{}, foreign: map[resourceKey][]nodeqosv1alpha1.ForeignSetting{}, budget: holdersBudget,
		reasons: map[holderKey]string{}, added: map[assignmentKey]bool{},
	}
	for _, e := range assignments.GetEvictions() {
		h.reasons[holderKey{uid: e.GetPodUid(), container: e.GetContainer(), resource: e.GetResource()}] = e.GetReason()
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
	since := map[nodeqosv1alpha1.Holder]*metav1.Time{}
	each := func(resources []nodeqosv1alpha1.QOSResourceInfo, do func(key nodeqosv1alpha1.Holder, h *nodeqosv1alpha1.Holder)) {
		for _, r := range resources {
			for _, class := range r.Classes {
				for i := range class.Holders {
					key := class.Holders[i]
					key.Since, key.Source, key.Reason = nil, r.Name, class.Name
					do(key, &class.Holders[i])
				}
			}
		}
	}
	each(before, func(key nodeqosv1alpha1.Holder, h *nodeqosv1alpha1.Holder) { since[key] = h.Since })
	each(volumes, func(key nodeqosv1alpha1.Holder, h *nodeqosv1alpha1.Holder) {
		if h.Since == nil {
			h.Since = since[key]
		}
	})
}

// add adds a holder to each of its classes. The system default does not count as a class. If another program has set something in
// place of the system default, or for a volume, add adds this setting to the foreign settings. A restarted container and its
// predecessor count as one holder.
func (h *holders) add(podUID string, holder nodeqosv1alpha1.Holder, scope qosv1alpha1.Scope, assignments []*qosv1alpha1.Assignment) {
	for _, a := range assignments {
		owner := holderKey{podUID, holder.Container, holder.Volume, a.GetName()}
		assignment := assignmentKey{owner, a.GetClass()}
		if h.added[assignment] || a.GetClass() == "" && a.GetForeign() == "" {
			continue
		}

		h.added[assignment] = true
		resource := resourceKey{scope, a.GetName()}
		if setting := a.GetForeign(); setting != "" {
			if holder.Volume != "" {
				setting = "volume " + holder.Volume + ": " + setting
			}
			h.foreign[resource] = append(h.foreign[resource], nodeqosv1alpha1.ForeignSetting{
				Namespace: holder.Namespace, Pod: holder.Pod, Container: holder.Container, Setting: cut(setting, longestDescription),
			})
		}
		if a.GetClass() == "" {
			continue
		}
		key := classKey{resource, a.GetClass()}
		owner.volume = "" // evictions name the container of a volume
		holder.Source, holder.Reason = a.GetSource().Name(), h.reasons[owner]
		h.byClass[key] = append(h.byClass[key], holder)
	}
}

func (h *holders) take(key classKey) (listed []nodeqosv1alpha1.Holder, omitted int64) {
	return fit(h.byClass[key], &h.budget, func(holder nodeqosv1alpha1.Holder) int {
		size := len(`{"namespace":"","pod":"","container":"","source":"","reason":""},`) +
			len(holder.Namespace) + len(holder.Pod) + len(holder.Container) + len(holder.Source) + len(holder.Reason)
		if holder.Volume != "" {
			size += len(`"volume":"","device":"","since":"2026-01-01T00:00:00Z",`) + len(holder.Volume) + len(holder.Device)
		}
		return size
	})
}

func (h *holders) takeForeign(key resourceKey) (listed []nodeqosv1alpha1.ForeignSetting, omitted int64) {
	return fit(h.foreign[key], &h.budget, func(f nodeqosv1alpha1.ForeignSetting) int {
		return len(`{"namespace":"","pod":"","container":"","setting":""},`) + len(f.Namespace) + len(f.Pod) + len(f.Container) + len(f.Setting)
	})
}

// fit returns the first items whose sizes fit into the budget, at most MaxHolders, and the number of the other items. It subtracts
// the sizes from the budget.
func fit[T any](all []T, budget *int, size func(T) int) (listed []T, omitted int64) {
	end := 0
	for end < min(len(all), nodeqosv1alpha1.MaxHolders) && size(all[end]) <= *budget {
		*budget -= size(all[end])
		end++
	}
	return all[:end:end], int64(len(all) - end)
}
