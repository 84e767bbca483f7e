// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.podScope() {
		running = nil
	}
	ended := s.releaseUnlisted(running, containers)
	var failed []FailedAdoption
	for _, pod := range running {
		failed = append(failed, s.adoptPod(pod)...)
	}
	failed = append(failed, s.adoptContainers(containers)...)
	for _, c := range containers {
		failed = append(failed, s.adoptVolumes(c)...)
	}

	for id, r := range ended {
		if r.pending && s.isReplaced(id, r.request.Subject()) {
			s.accept(r.request.Subject())
		}
	}
	s.changes.Keep(func(id string) bool {
		_, known := s.ledger.Get(id)
		return known || slices.ContainsFunc(pods, func(p classes.Holder) bool { return p.ID == id })
	})

	if !s.runtime.Synchronized {
		s.runtime.Synchronized, s.runtime.Since, s.runtime.SyncFailure = true, s.now(), nil
	}
	s.signalRelease() // the running containers are known now, so backends can release unused groups of an earlier process
	s.notify()
	return failed
}

// releaseUnlisted releases the holders that the runtime does not list, and returns their records. The caller holds mu.
func (s *Store) releaseUnlisted(pods []classes.Holder, containers []Existing) map[string]record {
	listed := map[string]bool{}
	for _, pod := range pods {
		listed[pod.ID] = true
	}
	for _, c := range containers {
		listed[c.ID] = true
	}

	ended := maps.Clone(s.records)
	maps.DeleteFunc(ended, func(id string, _ record) bool {
		h, _ := s.ledger.Get(id)
		return listed[containerOf(h.Holder)]
	})
	for id := range ended {
		s.drop(id)
	}
	return ended
}

// containerOf returns the ID of a holder, or of the container if the holder is a volume.
func containerOf(h classes.Holder) string {
	if h.Scope() == classes.VolumeScope {
		return strings.TrimSuffix(h.ID, classes.VolumeID("", h.Volume))
	}
	return h.ID
}

// keepKnown updates a holder that the ledger has already, and reports whether there is such a holder. The runtime's list
// may be older than the call of the start hook, so a holder that has started stays started. The caller holds mu.
func (s *Store) keepKnown(h classes.Holder, started bool) bool {
	held, known := s.ledger.Get(h.ID)
	if !known {
		return false
	}

	if h.PID <= 0 {
		h.PID = held.PID
	}
	s.ledger.Adopt(holding(h, held.Assignments))
	s.sequence++
	s.modify(h.ID, func(r *record) { r.number, r.started = s.sequence, r.started || started })
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
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, known := s.ledger.Get(pod.ID); !known && s.podScope() {
		s.adoptPod(pod) // a failed adoption is reported as a refusal
		s.notify()
	}
}

// HasPodScope reports whether a resource of pod scope or volume scope is configured, or was removed but is still in
// use. Classes of both scopes are enforced in the cgroups of pods. If no claim has a class any more, pods stay tracked,
// because the backend still has to remove limits from their cgroups.
func (s *Store) HasPodScope() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.podScope()
}

func (s *Store) podScope() bool {
	for name, r := range s.resources {
		if r.Config.Scope != classes.ContainerScope && (s.configured(name) || len(s.ledger.Used(name)) > 0 || name == classes.ClaimResource) {
			return true
		}
	}
	return false
}

// adoptPod adopts a pod, and assigns the classes that the pod requests, because the runtime stores no record of a pod's
// classes. The pod may have been created while the plugin was not connected, so its classes must be verified. The caller
// holds mu.
func (s *Store) adoptPod(pod classes.Holder) (failed []FailedAdoption) {
	if s.keepKnown(pod, true) {
		return nil
	}

	wanted, err := s.catalog.Resolve(pod)
	if err != nil {
		failed = append(failed, FailedAdoption{pod, err})
		wanted = s.defaults(holding(pod, nil))
	}
	if changed, ok := s.changes.Get(pod.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}

	s.ledger.Adopt(holding(pod, wanted))
	r := record{started: true, unverified: len(wanted) > 0}
	if r.unverified {
		r.request = requestOf(pod)
	}
	s.track(pod.ID, r)
	_ = s.postpone(pod, err)
	return failed
}

// adoptContainers adopts all containers that are not known. It begins with the containers that have a RecordAnnotation,
// because these containers already occupy slots of their classes. The caller holds mu.
func (s *Store) adoptContainers(containers []Existing) (failed []FailedAdoption) {
	for _, c := range containers {
		if has := recordedOn(c.Holder); !s.keepKnown(c.Holder, c.Started) && has != nil {
			s.adoptRecorded(c, has)
		}
	}

	for _, c := range containers {
		if _, adopted := s.ledger.Get(c.ID); !adopted && c.Started {
			err := s.adoptWithoutSlots(c.Holder, nil)
			if err != nil {
				failed = append(failed, FailedAdoption{c.Holder, err})
			}
			s.countAdopted(c.ID)
		}
		s.checkStored(c.ID, c.Stored)
	}
	return failed
}

// countAdopted counts, in s.adopted, a running container that requests classes and was created without them. The caller
// holds mu.
func (s *Store) countAdopted(id string) {
	held, _ := s.ledger.Get(id)
	if s.records[id].pending || slices.ContainsFunc(held.Assignments, isRequested) {
		s.adopted++
	}
}

func (s *Store) adoptRecorded(c Existing, has []classes.Assignment) {
	wanted := s.recordedClasses(c.Holder, has)
	if changed, ok := s.changes.Get(c.ID); ok {
		wanted = classes.Overlay(wanted, changed)
	}

	s.ledger.Adopt(holding(c.Holder, s.withResourcesOf(wanted, has)))
	s.track(c.ID, record{started: c.Started, created: has})
	s.observeAll(c.ID, func(resource string) string { return classes.ClassOf(has, resource) })
}

// withResourcesOf returns the assignments and, for each resource of which only the assignments `has` have a class, the
// system default, so that the holder leaves that class. It skips resources that no backend can enforce. The caller holds
// mu.
func (s *Store) withResourcesOf(assignments, has []classes.Assignment) []classes.Assignment {
	all := slices.Clone(assignments)
	for _, a := range withoutResourcesOf(has, assignments) {
		if _, enforceable := s.resources[a.Resource]; enforceable {
			all = append(all, classes.Assignment{Resource: a.Resource})
		}
	}
	return all
}

// recordedClasses returns the classes of a container with a RecordAnnotation: those that it was created with, and the
// current defaults. The caller holds mu.
func (s *Store) recordedClasses(h classes.Holder, has []classes.Assignment) []classes.Assignment {
	wanted, err := s.catalog.Resolve(h)
	if err != nil {
		return has
	}
	return classes.Overlay(wanted, withoutDefaults(has))
}

// adoptWithoutSlots adopts a container that occupies no slots. It was created with the classes `has` of its
// RecordAnnotation, or without classes if it has no valid RecordAnnotation. The container gets the classes of the
// annotation, or the classes that it requests if there is none. If these cannot be assigned, it gets the default classes.
// The container keeps every class that an update has assigned since the container's creation, because the update has
// already admitted the class.
//
// If the classes cannot be assigned, adoptWithoutSlots returns the reason, and the request stays pending.
func (s *Store) adoptWithoutSlots(h classes.Holder, has []classes.Assignment) (err error) {
	wanted := has
	if has != nil {
		wanted = s.recordedClasses(h, has)
	} else {
		wanted, err = s.catalog.Resolve(h)
	}
	changed, _ := s.changes.Get(h.ID)
	if err == nil {
		err = s.ledger.Admit(holding(h, withoutResourcesOf(wanted, changed)), s.catalog)
	}
	if err != nil {
		wanted = s.withResourcesOf(s.defaults(holding(h, nil)), has)
	}

	s.ledger.Adopt(holding(h, classes.Overlay(wanted, changed)))
	s.track(h.ID, record{started: true, created: has})
	s.observeAll(h.ID, func(resource string) string { return classes.ClassOf(has, resource) })
	return s.postpone(h, err)
}

func withoutResourcesOf(assignments, others []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool {
		return slices.ContainsFunc(others, func(o classes.Assignment) bool { return o.Resource == a.Resource })
	})
}

// withoutDefaults returns the assignments that a container keeps for its whole life. It leaves out default classes,
// because these follow the configuration (KEP-3008, "Implicit defaults").
func withoutDefaults(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source == classes.SourceDefault })
}

// checkStored marks a container as stale if the values that the runtime has stored for it differ from its classes.
// The caller holds mu.
func (s *Store) checkStored(id string, stored map[string]string) {
	held, known := s.ledger.Get(id)
	if !known || len(stored) == 0 {
		return
	}

	for name, r := range s.resources {
		checker, ok := r.Backend.(classes.StoredValueChecker)
		if !ok || r.Config.Scope != classes.ContainerScope {
			continue
		}
		if s.mayBeStored(id, name) && checker.IsStale(held.Class(name), stored) {
			s.modify(id, func(r *record) { r.stale = true })
		}
	}
}

// SetStored records whether the runtime may have stored values that differ from the desired classes of a holder.
func (s *Store) SetStored(id string, stale bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modify(id, func(r *record) { r.stale = stale })
}

// mayBeStored reports whether the runtime may have stored, for a holder, values of a class of a resource. The runtime may
// have stored such values if the holder has or had a class of the resource, or if the runtime was asked to change the
// holder's stored values. The caller holds mu.
func (s *Store) mayBeStored(id, resource string) bool {
	held, _ := s.ledger.Get(id)
	r := s.records[id]
	return r.updated || classes.ClassOf(r.created, resource) != classes.SystemDefault ||
		slices.ContainsFunc(held.Assignments, func(a classes.Assignment) bool {
			return a.Resource == resource && (a.Class != classes.SystemDefault || a.Source == classes.SourceUpdate)
		})
}

// UpdatedStored records that the runtime was asked to change the values that it has stored for a holder.
func (s *Store) UpdatedStored(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modify(id, func(r *record) { r.updated = true })
}

// DevicesLost marks each holder as stale for which the runtime may have stored values of a resource. These values may
// name devices that the machine lost.
func (s *Store) DevicesLost(resource string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id := range s.records {
		if s.mayBeStored(id, resource) {
			s.modify(id, func(r *record) { r.stale = true })
		}
	}
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
	value, ok := h.ContainerAnnotations[RecordAnnotation]
	if _, forged := h.PodAnnotations[RecordAnnotation]; forged || !ok {
		return nil
	}

	var assigned []classes.Assignment
	if json.Unmarshal([]byte(value), &assigned) != nil {
		return nil
	}
	return assigned
}
