// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Admit assigns classes to a container that is about to be created, and to its volumes. It returns what the runtime must set for the
// classes of the container. If Admit returns an error, it assigns nothing.
func (s *Store) Admit(h classes.Holder) (classes.Adjustment, []classes.Assignment, error) {
	defer s.lock()()
	n := &s.node

	held, err := n.admit(h)
	if err != nil {
		return nil, nil, n.refuse(h, err)
	}
	adjustment, err := n.live.adjustment(classes.Holding{Holder: h, Assignments: held[0].Assignments}) // held lacks the settings
	for _, one := range held {
		if err != nil {
			n.table.Release(one.ID)
			continue
		}
		n.releaseOthers(one, func(h *Holding) bool { return h.Phase == Created }) // their creation failed, and the runtime did not report the failure
	}
	if err != nil {
		return nil, nil, n.refuse(h, fmt.Errorf("%s: %w", h, err))
	}
	n.setStored(h.ID, adjustment.Unified())
	n.changed = true
	return adjustment, held[0].Assignments, nil
}

// releaseOthers releases the other holders of the same subject that match the filter.
func (n *node) releaseOthers(held Holding, is func(*Holding) bool) {
	others := func(h *Holding) bool { return h.ID != held.ID && h.Subject() == held.Subject() && is(h) }
	for _, other := range n.table.InGroup(group{podUID: held.PodUID}, others) {
		n.release(other.ID)
	}
}

// admit assigns the requested classes to a holder that is about to be created, and to the volumes of a container, if
// each of these classes has a free slot. The first Holding is that of `h`.
func (n *node) admit(h classes.Holder) ([]Holding, error) {
	catalog, wanted, err := n.resolveWith(h, func(catalog *classes.Catalog) ([]classes.Holding, error) { return catalog.ResolveAll(h) })
	if err != nil {
		return nil, err
	}

	held := make([]Holding, len(wanted))
	for i, one := range wanted {
		held[i] = n.newHolding(one.Holder, one.Assignments, Created)
		if one.Scope() == classes.ContainerScope {
			held[i].Created = one.Assignments
		}
	}
	if err := n.table.Admit(catalog, held...); err != nil {
		return nil, err
	}
	for _, one := range held {
		delete(n.kept, one.Subject())
	}
	return held, nil
}

// newHolding returns the Holding of a holder that the table lacks. A volume is reported without its class until a hook or
// the reconciler has enforced or observed the limits.
func (n *node) newHolding(h classes.Holder, assignments []classes.Assignment, phase Phase) Holding {
	n.sequence++
	held := holding(h, assignments)
	held.Phase, held.Number, held.Since = phase, n.sequence, n.now()
	if h.Scope() == classes.VolumeScope {
		held.observeAll(func(string) string { return classes.SystemDefault })
	}
	return held
}

// AdmitPod assigns pod-scope classes to a pod that is about to run. The caller must then enforce these classes and call Finish.
func (s *Store) AdmitPod(h classes.Holder) (Holding, error) {
	defer s.lock()()
	n := &s.node

	held, err := n.admit(h)
	if err != nil {
		return Holding{}, n.refuse(h, err)
	}

	// An earlier sandbox of the pod is dead, and the pod's cgroup now belongs to the new sandbox.
	n.releaseOthers(held[0], func(*Holding) bool { return true })
	n.changed = true
	return n.begin(h.ID), nil
}

// Start records the process of a container that is about to start, for the container and for each of its volumes. The
// caller must then enforce the classes of the volumes and of the container, and call Finish for each of them. If a
// container was created while the plugin was not connected, Start admits the container to the classes that it requests.
//
// If Start or Finish returns an error, the caller must end the container's processes and call StartRefused. Some
// runtimes start the container even then, so a request that was not admitted stays pending until the container ends.
func (s *Store) Start(h classes.Holder) (container Holding, volumes []Holding, err error) {
	defer s.lock()()
	n := &s.node

	volumes, err = n.startVolumes(h)
	if err != nil {
		return Holding{}, nil, err
	}
	if _, known := n.table.Get(h.ID); !known {
		if err := (&adoption{n}).adoptStarting(h); err != nil {
			return Holding{}, nil, err
		}
	}
	h.Spec.Settings = nil // for a known container, they may be values of its class

	n.runtime.ReportsPIDs = n.runtime.ReportsPIDs || h.PID > 0
	n.update(h.ID, func(held *Holding) { held.follows(h) })
	container = n.begin(h.ID)
	// Observed is not empty if the container was created in a class that is not its desired class. The backend must then
	// move the container. Otherwise the runtime has already set the class, and the backend only verifies the class.
	container.Starting = len(container.Observed) == 0
	return container, volumes, nil
}

// adoptStarting adopts a container that is about to start and is not known: it was created while the plugin was not
// connected, or it was released because its creation seemed to have failed. In both cases it has no slots, and is
// admitted only if its classes have free slots.
func (n *adoption) adoptStarting(h classes.Holder) error {
	has := recordedOn(h)
	h = n.withOriginals(Existing{Holder: h, Stored: h.Spec.Settings.Unified()}).Holder
	h.Spec.Settings = nil // if it has a record, they are values of its class
	if err := n.adoptWithoutSlots(h, has); err != nil {
		n.update(h.ID, func(held *Holding) {
			if held.Phase.isWaiting() {
				held.happens(startRefused)
			}
		})
		return err
	}

	if has == nil {
		n.countAdopted(h.ID)
	}
	n.changed = true
	return nil
}

// begin records that a hook is enforcing the classes of a holder. If the holder has no class, there is nothing to
// enforce, and begin only removes the holder's refusal.
func (n *node) begin(id string) Holding {
	held, _ := n.table.Get(id)
	event := started
	if slices.ContainsFunc(held.Assignments, func(a classes.Assignment) bool { return a.Class != classes.SystemDefault }) {
		event = hookBegan
	} else {
		n.accept(held)
	}

	n.update(id, func(h *Holding) { h.happens(event) })
	held, _ = n.table.Get(id)
	return held
}

// Finish records the result of a hook that enforces classes. The parameter `err` is nil if the hook has enforced all
// classes. If `err` is a ClaimError, only the class of a claim is not in force. Finish then reports `err` as a refusal and
// returns nil, and the reconciler retries. Finish records and counts any other error as a refusal, and returns this
// error.
func (s *Store) Finish(e Holding, err error) error {
	defer s.lock()()
	n := &s.node

	_, ofClaim := errors.AsType[ClaimError](err)
	if err != nil && !ofClaim {
		n.update(e.ID, func(h *Holding) {
			h.happens(startRefused)
			h.observeAll(func(string) string { return classes.SystemDefault }) // not verified
		})
		if e.Container == "" {
			n.endStart(e.ID) // the runtime itself ends the sandbox
		}
		return n.refuse(e.Holder, fmt.Errorf("%s: %w", e, err))
	}

	n.update(e.ID, func(h *Holding) {
		h.happens(hookEnded)
		h.InForce = n.now()
		for resource := range h.Observed {
			h.observe(resource, e.Class(resource))
		}
	})
	if ofClaim {
		n.update(e.ID, func(h *Holding) {
			for _, a := range h.Assignments {
				if a.Source == classes.SourceClaim {
					h.observe(a.Resource, classes.SystemDefault)
				}
			}
		})
		n.notEnforced(e, err)
		return nil
	}
	n.accept(e)
	return nil
}

// StartRefused records that the processes of a container whose start was refused were ended, as far as possible. If the
// runtime still starts the container, the reconciler enforces its classes and those of its volumes from now on.
func (s *Store) StartRefused(id string) {
	defer s.lock()()
	s.node.endStart(id)
	for _, volume := range s.node.table.volumesOf(id) {
		s.node.endStart(volume.ID)
	}
}

func (n *node) endStart(id string) {
	n.update(id, func(h *Holding) {
		pending := h.Phase == Ending && h.Request != nil
		request := h.Request
		h.happens(processesEnded)
		if pending {
			h.happens(postponed)
			h.Request = request
		}
	})
}

// Release frees the slots of a container or pod sandbox that has stopped or is removed. It may be called several
// times for the same ID, and for unknown IDs.
func (s *Store) Release(id string) {
	defer s.lock()()
	s.node.release(id)
}

// ReleasePod frees the slots of a pod sandbox that has stopped or is removed, and of its containers. ReleasePod also
// releases containers whose creation the OCI runtime refused, because CRI-O does not report their end.
func (s *Store) ReleasePod(sandboxID string) {
	defer s.lock()()
	for _, h := range s.node.table.Where(func(h *Holding) bool { return h.SandboxID == sandboxID }) {
		s.node.release(h.ID)
	}
	s.node.forget(func(id string) bool { return id == sandboxID })
}

// release removes a holder and its volumes, and the saved changes of the holder's classes.
func (n *node) release(id string) {
	n.dropVolumes(id)
	n.drop(id)
	n.changes.Forget(id)
}

// drop removes a holder from the table. The refusal of a start stays reported, because it is the reason why the container
// has ended.
func (n *node) drop(id string) {
	h, known := n.table.Get(id)
	if !known {
		return
	}

	n.keep(h)
	n.left(slices.Concat(h.Assignments, n.table.Reserved(id)))
	n.table.Release(id)
	n.changed = true
	if other := n.table.newest(h.Subject()); h.Phase == Waiting && !other.Phase.isRefused() {
		n.accept(h)
	}
}
