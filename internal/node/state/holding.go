// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Holding is what the node knows about one container, pod or volume. Its assignments are the desired classes. Its maps
// and slices are replaced at each change and never modified, so that copies may share them.
type Holding struct {
	classes.Holding
	Phase Phase
	// Number orders the holders of one subject. The newest holder has the highest number.
	Number uint64
	// `Since` is the time at which the store first saw the holder.
	Since time.Time
	// StartTime is the start time of the holder's first process, as it was first observed. It is 0 if unknown.
	StartTime uint64
	// Created lists the classes that the holder had at its creation. The runtime has stored these classes.
	Created []classes.Assignment
	// Observed maps a resource to the last observed class, if this class differs from the desired class.
	Observed map[string]string
	// Foreign maps a resource to a description of values that another program has set, if the holder has no class of
	// the resource.
	Foreign map[string]string
	// Stale maps a resource to the properties for which the holder has other values than its class (classes.Observation).
	Stale map[string]string
	// Limited maps a resource to the reason why its class does not have its full effect (classes.Observation).
	Limited map[string]string
	// NotEnforced maps a resource that another program enforces to the reason why that program has not enforced the
	// class (ReportEnforcement).
	NotEnforced map[string]string
	// InForce is the time at which the classes of the holder were last enforced. It is zero if a former process
	// enforced them.
	InForce time.Time
	// Stored says how the values that the runtime has stored relate to the desired classes.
	Stored Stored
	// Resizing is the change of the container that the runtime is making, or has refused. It is nil if there is none.
	Resizing *Resizing
	// Request is the request of a holder that is not admitted yet. It is nil if the request is too large to keep.
	Request *classes.Holder
}

// Stored says how the values that the runtime has stored for a container relate to its desired classes.
type Stored int

const (
	// StoredAtCreation means that the runtime was not asked for any change since the holder was created or adopted.
	StoredAtCreation Stored = iota
	// StoredByUpdate means that the runtime was asked to store other values, and has answered.
	StoredByUpdate
	// StoredStale means that the stored values may differ from those of the desired classes.
	StoredStale
)

// ObservedClass returns the last observed class of a resource.
func (h *Holding) ObservedClass(resource string) string {
	if class, differs := h.Observed[resource]; differs {
		return class
	}
	return classes.ClassOf(h.Assignments, resource)
}

// Updates returns the assignments that updates made after the holder's creation.
func (h Holding) Updates() []classes.Assignment { return updates(h.Assignments) }

func updates(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceUpdate })
}

// creationTime is the longest time that the creation of a container may take. After that, a container that has neither
// a started process nor a cgroup counts as not created. CRI-O gives an OCI runtime 240 s to create a container
// (container_create_timeout), and the kubelet waits 2 minutes for the runtime (runtimeRequestTimeout).
const creationTime = 5 * time.Minute

// IsLate reports whether the holder has not started within the time that a creation may take. Its creation may have
// failed. A volume counts as created and started together with its container.
func (h Holding) IsLate(now time.Time) bool {
	return h.Phase == Created && now.Sub(h.Since) > creationTime
}

// SetStartTime records when the first process of the holder was started. If another time is already recorded,
// SetStartTime returns true, because the PID now belongs to another process.
func (h *Holding) SetStartTime(at uint64) (differs bool) {
	if h.StartTime != 0 && at != 0 && at != h.StartTime {
		return true
	}
	if at != 0 {
		h.StartTime = at
	}
	return false
}

// AskedToStore records that the runtime was asked to change the values that it has stored.
func (h *Holding) AskedToStore() {
	if h.Stored == StoredAtCreation {
		h.Stored = StoredByUpdate
	}
}

// MayStore reports whether the runtime may have stored values of a class of a resource for the holder. This is so if
// the holder has or had a class of the resource, or if the runtime was asked to change the stored values.
func (h Holding) MayStore(resource string) bool {
	return h.Stored != StoredAtCreation || classes.ClassOf(h.Created, resource) != classes.SystemDefault ||
		slices.ContainsFunc(h.Assignments, func(a classes.Assignment) bool {
			return a.Resource == resource && (a.Class != classes.SystemDefault || a.Source == classes.SourceUpdate)
		})
}

// SetObservation records what an observation shows of a resource, beside the class.
func (h *Holding) SetObservation(resource string, o classes.Observation) {
	h.Foreign = withText(h.Foreign, resource, o.Foreign)
	h.Stale = withText(h.Stale, resource, o.Stale)
	h.Limited = withText(h.Limited, resource, o.Limited)
}

// observe records the observed class of a resource.
func (h *Holding) observe(resource, class string) {
	recorded, differs := h.Observed[resource]
	if want := h.Class(resource); differs != (class != want) || differs && recorded != class {
		h.Observed = with(h.Observed, resource, class, class != want)
	}
}

// observeAll records the observed classes of all resources for which the holder has an assignment.
func (h *Holding) observeAll(observed func(resource string) string) {
	for _, a := range h.Assignments {
		h.observe(a.Resource, observed(a.Resource))
	}
}

// assign replaces the desired classes. It does not change the observed classes.
func (h *Holding) assign(assignments []classes.Assignment) {
	before := *h
	h.endReports(assignments)
	h.Assignments, h.Observed = assignments, nil
	h.observeAll(before.ObservedClass)
}

// endReports removes the reports on resources for which `next` has another class.
func (h *Holding) endReports(next []classes.Assignment) {
	for resource := range h.NotEnforced {
		if h.Class(resource) != classes.ClassOf(next, resource) {
			h.NotEnforced = with(h.NotEnforced, resource, "", false)
		}
	}
}

// happens moves the holder to the phase that follows an event.
func (h *Holding) happens(e event) {
	h.Phase = h.Phase.after(e)
	if !h.Phase.isWaiting() && h.Phase != Unverified && h.Phase != Ending {
		h.Request = nil
	}
}

// container returns the ID of the holder, or of its container if the holder is a volume.
func (h Holding) container() string {
	return cmp.Or(h.ContainerID, h.ID)
}

// groups returns the groups to which the holder belongs.
func (h *Holding) groups() [2]group {
	return [2]group{{podUID: h.PodUID}, {containerID: h.container()}}
}

// with returns a copy of a map. If `keep` is true, the copy has the value under the key. Otherwise it lacks the key.
func with(values map[string]string, key, value string, keep bool) map[string]string {
	values = maps.Clone(values)
	if !keep {
		delete(values, key)
		return values
	}
	if values == nil {
		values = map[string]string{}
	}
	values[key] = value
	return values
}

// withText returns a map in which a key has a text, or in which the key is missing if the text is empty.
func withText(texts map[string]string, key, text string) map[string]string {
	if texts[key] == text {
		return texts
	}
	return with(texts, key, text, text != "")
}

// follows sets the description of a known holder. It keeps the originals that are in memory. Those in `now` come from
// an annotation of the container, which has fewer settings, and may be older than the last change of the container.
func (h *Holding) follows(now classes.Holder) {
	if h.Spec.Originals != nil {
		now.Spec.Originals = h.Spec.Originals
	}
	h.Holder, h.Resizing = holding(now, nil).Holder, nil
}

// holding returns the Holding of a holder with its desired classes. It removes the annotations. During a creation, Spec.Settings has the
// values that no class has replaced yet, so they become Spec.Originals. For a pod, it also removes the PID of the sandbox, because the
// sandbox's process is not in the pod's cgroup.
func holding(h classes.Holder, assignments []classes.Assignment) Holding {
	if h.Spec.Originals == nil {
		h.Spec.Originals = h.Spec.Settings
	}
	h.PodAnnotations, h.ContainerAnnotations, h.Spec.Settings = nil, nil, nil
	if h.Container == "" {
		h.PID, h.SandboxID = 0, h.ID
	}
	return Holding{Holding: classes.Holding{Holder: h, Assignments: assignments}}
}
