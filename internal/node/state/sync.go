// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Existing is a container that already exists when the runtime synchronizes the plugin.
type Existing struct {
	classes.Holder
	// Started is false if the first process of the container has not been started yet.
	Started bool
	// Stored maps the name of each cgroup v2 file to the value that the runtime has stored for the container.
	Stored map[string]string
}

// FailedAdoption is a running container or pod that did not get the classes that it requests, and the reason.
type FailedAdoption struct {
	classes.Holder
	Err error
}

// adoption is the node while it takes over existing containers and pods.
type adoption struct{ *node }

// Rebuild makes the store match the containers and pods that exist on the node: it keeps those that it knows, adopts the
// others, and releases the holders that do not exist any more. It returns the adopted holders that did not get the
// classes that they request. A known holder stays as it is, because a synchronization changes nothing on the machine.
//
// A container with a RecordAnnotation is adopted with the classes in this annotation and the classes that it got by later
// updates, even if a class then exceeds its capacity. A container without the annotation was created while the plugin
// was not connected. It gets the classes that it requests if they have free slots.
//
// If two containers have the same name, the caller must list the newer one last.
func (s *Store) Rebuild(pods []classes.Holder, containers []Existing) []FailedAdoption {
	running := withoutStopped(pods, containers)
	defer s.lock()()
	n := &adoption{&s.node}

	if !n.podScope() {
		running = nil
	}
	n.runtime.ReportsPIDs = n.runtime.ReportsPIDs || slices.ContainsFunc(containers, func(c Existing) bool { return c.Started && c.PID > 0 })
	ended := n.releaseUnlisted(running, containers)
	var failed []FailedAdoption
	for _, pod := range running {
		failed = append(failed, n.adoptPod(pod)...)
	}
	failed = append(failed, n.adoptContainers(containers)...)
	for _, c := range containers {
		failed = append(failed, n.adoptVolumes(c)...)
	}

	n.forget(func(sandboxID string) bool {
		return !slices.ContainsFunc(pods, func(p classes.Holder) bool { return p.ID == sandboxID })
	})
	for _, h := range ended {
		if h.Phase.isRefused() && n.table.isReplaced(h.ID, h.Subject()) {
			n.accept(h)
		}
	}
	n.changes.Keep(func(id string) bool {
		_, known := n.table.Get(id)
		return known || slices.ContainsFunc(pods, func(p classes.Holder) bool { return p.ID == id })
	})

	if !n.runtime.Synchronized {
		n.runtime.Synchronized, n.runtime.Since, n.runtime.SyncFailure = true, n.now(), nil
	}
	n.released = true // the running containers are known now, so backends can release unused groups of an earlier process
	n.changed = true
	return failed
}

// releaseUnlisted releases the holders that the runtime does not list, and returns them.
func (n *adoption) releaseUnlisted(pods []classes.Holder, containers []Existing) []Holding {
	listed := map[string]bool{}
	for _, pod := range pods {
		listed[pod.ID] = true
	}
	for _, c := range containers {
		listed[c.ID] = true
	}

	ended := n.table.Where(func(h *Holding) bool { return !listed[h.container()] })
	for _, h := range ended {
		n.drop(h.ID)
	}
	return ended
}

// keepKnown updates a holder that is known already, and reports whether there is such a holder. The runtime's list may be
// older than the call of the start hook, so a holder that has started stays started.
func (n *adoption) keepKnown(h classes.Holder, running bool) bool {
	before, known := n.table.Get(h.ID)
	if !known {
		return false
	}

	if h.PID <= 0 {
		h.PID = before.PID
	}
	n.sequence++
	n.update(h.ID, func(held *Holding) {
		held.follows(h)
		held.Number = n.sequence
		if running {
			held.happens(started)
		}
	})
	return true
}

// withoutStopped removes the sandboxes that have neither a process nor a listed container, because runtimes list
// stopped sandboxes until the kubelet removes them. It also removes a running CRI-O sandbox without a process
// (drop_infra_ctr) that has no container yet. AdoptPod adopts the pod of such a sandbox when the pod's first container
// is created.
func withoutStopped(pods []classes.Holder, containers []Existing) []classes.Holder {
	inUse := map[string]bool{}
	for _, c := range containers {
		inUse[c.SandboxID] = true
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod classes.Holder) bool { return pod.PID <= 0 && !inUse[pod.ID] })
}

// AdoptPod adopts the pod of a container that is about to be created, if resources of pod scope or volume scope are configured and the
// pod is unknown.
func (s *Store) AdoptPod(pod classes.Holder) {
	defer s.lock()()
	n := &s.node

	if _, known := n.table.Get(pod.ID); !known && n.podScope() {
		(&adoption{n}).adoptPod(pod) // a failed adoption is reported as a refusal
		n.changed = true
	}
}

// HasPodScope reports whether a resource of pod scope or volume scope is configured, or was removed but is still in
// use. Classes of both scopes are enforced in the cgroups of pods. If no claim has a class any more, pods stay tracked,
// because the backend still has to remove limits from their cgroups.
func (s *View) HasPodScope() bool {
	defer s.lock()()
	return s.node.podScope()
}

func (n *node) podScope() bool {
	for name, r := range n.live.Resources {
		if r.Config.Scope != classes.ContainerScope && (n.live.Configured(name) || len(n.table.Used(name)) > 0 || r.Config.FromClaims) {
			return true
		}
	}
	return false
}

// adoptPod adopts a pod, and assigns the classes that the pod requests, because the runtime stores no record of a pod's
// classes. The pod may have been created while the plugin was not connected, so its classes must be verified.
func (n *adoption) adoptPod(pod classes.Holder) (failed []FailedAdoption) {
	if n.keepKnown(pod, true) {
		return nil
	}

	wanted, err := n.live.Catalog.Resolve(pod)
	if err != nil {
		failed = append(failed, FailedAdoption{pod, err})
		wanted = n.live.defaults(classes.Holding{Holder: pod})
	}
	if changed, ok := n.changes.Get(pod.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}

	held := n.newHolding(pod, wanted, Running)
	if len(wanted) > 0 {
		held.Phase, held.Request = Unverified, requestOf(pod)
	}
	n.table.Adopt(held)
	_ = n.postpone(pod, err)
	return failed
}

// adoptContainers adopts all containers that are not known. It begins with the containers that have a RecordAnnotation,
// because these containers already occupy slots of their classes.
func (n *adoption) adoptContainers(containers []Existing) (failed []FailedAdoption) {
	for _, c := range containers {
		if has := recordedOn(c.Holder); !n.keepKnown(c.Holder, c.Started) && has != nil {
			n.adoptRecorded(n.withOriginals(c), has)
		}
	}

	for _, c := range containers {
		if _, adopted := n.table.Get(c.ID); !adopted && c.Started {
			c = n.withOriginals(c)
			err := n.adoptWithoutSlots(c.Holder, nil)
			if err != nil {
				failed = append(failed, FailedAdoption{c.Holder, err})
			}
			n.countAdopted(c.ID)
		}
		n.checkStored(c.ID, c.Stored)
	}
	return failed
}

// withOriginals returns a container with its saved originals. If none were saved, the runtime still stores the values
// of the creation, so these are the originals of a container without a RecordAnnotation. This is wrong if a version of
// the plugin that saved no originals has changed the classes of the container.
func (n *adoption) withOriginals(c Existing) Existing {
	saved, isSaved := n.changes.Originals(c.ID)
	_, changed := n.changes.Get(c.ID)
	switch {
	case isSaved:
		c.Spec.Originals = saved
	case recordedOn(c.Holder) == nil && !changed:
		c.Spec.Originals = classes.UnifiedFiles(c.Stored)
	}
	return c
}

// countAdopted counts, in n.adopted, a running container that requests classes and was created without them.
func (n *adoption) countAdopted(id string) {
	if h, _ := n.table.Get(id); h.Phase.isWaiting() || slices.ContainsFunc(h.Assignments, classes.Assignment.IsRequested) {
		n.adopted++
	}
}

func (n *adoption) adoptRecorded(c Existing, has []classes.Assignment) {
	wanted := n.live.recordedClasses(c.Holder, has)
	if changed, ok := n.changes.Get(c.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}
	n.adoptCreated(c.Holder, n.live.withResourcesOf(wanted, has), has, phaseOf(c.Started))
}

// adoptCreated adopts a container that was created in the classes `has`.
func (n *adoption) adoptCreated(h classes.Holder, wanted, has []classes.Assignment, phase Phase) {
	held := n.newHolding(h, wanted, phase)
	held.Created = has
	held.observeAll(func(resource string) string { return classes.ClassOf(has, resource) })
	n.table.Adopt(held)
}

// adoptWithoutSlots adopts a running container that occupies no slots. It was created with the classes `has` of its
// RecordAnnotation, or without classes if it has no valid RecordAnnotation. The container gets the classes of the
// annotation, or the classes that it requests if there is none. If these cannot be assigned, it gets the default classes.
// The container keeps every class that an update has assigned since the container's creation, because the update has
// already admitted the class.
//
// If the classes cannot be assigned, adoptWithoutSlots returns the reason, and the request stays pending.
func (n *adoption) adoptWithoutSlots(h classes.Holder, has []classes.Assignment) error {
	catalog, wanted, err := n.resolve(h)
	if has != nil {
		wanted, err = n.live.recordedClasses(h, has), nil
	}
	changed, _ := n.changes.Get(h.ID)
	if err == nil {
		err = n.table.Admit(catalog, holding(h, withoutResourcesOf(wanted, changed)))
	}
	if err != nil {
		wanted = n.live.withResourcesOf(n.live.defaults(classes.Holding{Holder: h}), has)
	}

	n.adoptCreated(h, classes.Overlay(wanted, changed), has, Running)
	return n.postpone(h, err)
}

func withoutResourcesOf(assignments, others []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool {
		return slices.ContainsFunc(others, func(o classes.Assignment) bool { return o.Resource == a.Resource })
	})
}

// SetStored gives the backends the cgroup v2 values that the runtime has stored for a container.
func (s *Store) SetStored(id string, stored map[string]string) {
	defer s.lock()()
	s.node.setStored(id, stored)
}

// checkStored marks a container as stale if the values that the runtime has stored for it differ from its classes.
func (n *node) checkStored(id string, stored map[string]string) {
	if n.setStored(id, stored) {
		n.update(id, func(h *Holding) { h.Stored = StoredStale })
	}
}

// setStored gives the backends the cgroup v2 values that the runtime has stored for a container. It reports whether they differ from the
// classes of the container.
func (n *node) setStored(id string, stored map[string]string) (stale bool) {
	held, known := n.table.Get(id)
	if !known || len(stored) == 0 {
		return false
	}

	for name, r := range n.live.Resources {
		if r.Config.Scope == classes.ContainerScope && held.isStale(name, r.Backend, stored) {
			stale = true
		}
	}
	return stale
}

// RecordAnnotation is the annotation in which the plugin lists the assignments of a container when the container is
// created. The runtime returns the annotation to a plugin that has restarted. The annotation is not a request for
// classes: the plugin reads it only when it adopts an existing container.
const RecordAnnotation = "assigned." + classes.Domain

// Record returns the value of RecordAnnotation. The value is empty if no class is assigned.
func Record(assignments []classes.Assignment) (string, error) {
	assigned := make([]classes.Assignment, 0, len(assignments))
	for _, a := range assignments {
		if a.Class != classes.SystemDefault {
			assigned = append(assigned, a)
		}
	}
	if len(assigned) == 0 {
		return "", nil
	}
	value, err := json.Marshal(assigned)
	if err != nil {
		return "", fmt.Errorf("record assignments: %w", err)
	}
	return string(value), nil
}

// recordedOn reads the RecordAnnotation of a container. It returns nil if the annotation is missing or not valid. It
// also returns nil if the pod has this annotation, because a user may have added it, and some runtimes copy a pod's
// annotations to its containers.
func recordedOn(h classes.Holder) []classes.Assignment {
	value, ok := h.OwnAnnotation(RecordAnnotation)
	if !ok {
		return nil
	}

	var assigned []classes.Assignment
	if json.Unmarshal([]byte(value), &assigned) != nil {
		return nil
	}
	return assigned
}
