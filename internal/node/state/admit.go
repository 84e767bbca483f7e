// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Admit assigns classes to a container that is about to be created. It returns what the runtime must set for these
// classes. If Admit returns an error, it assigns nothing.
func (s *Store) Admit(h classes.Holder) (classes.Adjustment, []classes.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, err := s.admit(h)
	if err != nil {
		return nil, nil, s.refuse(h, err)
	}
	adjustment, err := s.adjustment(held)
	if err != nil {
		s.ledger.Release(h.ID)
		return nil, nil, s.refuse(h, fmt.Errorf("%s: %w", h, err))
	}
	if err := s.admitVolumes(h); err != nil {
		s.ledger.Release(h.ID)
		return nil, nil, s.refuse(h, err)
	}

	s.track(h.ID, record{created: held.Assignments})
	s.releaseOthers(held, func(r record) bool { return !r.started }) // their creation failed, and the runtime did not report the failure
	s.notify()
	return adjustment, held.Assignments, nil
}

// releaseOthers releases the other holders of the same owner whose record matches the filter. The caller holds mu.
func (s *Store) releaseOthers(held classes.Holding, is func(record) bool) {
	for id, r := range s.records {
		if other, _ := s.ledger.Get(id); id != held.ID && other.Subject() == held.Subject() && is(r) {
			s.release(id)
		}
	}
}

// admit assigns the requested classes to a holder if each of these classes has a free slot. The caller holds mu.
func (s *Store) admit(h classes.Holder) (classes.Holding, error) {
	assignments, err := s.catalog.Resolve(h)
	if err != nil {
		return classes.Holding{}, err
	}
	held := holding(h, assignments)
	return held, s.ledger.Admit(held, s.catalog)
}

// adjustment merges the adjustments of the backends for the classes of a new holder. The caller holds mu.
func (s *Store) adjustment(held classes.Holding) (all classes.Adjustment, _ error) {
	for _, a := range held.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		one, err := s.resources[a.Resource].Adjust(held.Holder, classes.SystemDefault, a.Class)
		if err != nil {
			return nil, fmt.Errorf("class %q of %s: %w", a.Class, a.Resource, err)
		}
		all = all.Merge(one)
	}
	return all, nil
}

// AdmitPod assigns pod-scope classes to a pod that is about to run. The caller must then enforce these classes and call Finish.
func (s *Store) AdmitPod(h classes.Holder) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, err := s.admit(h)
	if err != nil {
		return Entry{}, s.refuse(h, err)
	}

	s.track(h.ID, record{started: true})
	// An earlier sandbox of the pod is dead, and the pod's cgroup now belongs to the new sandbox.
	s.releaseOthers(held, func(record) bool { return true })
	s.notify()
	return s.begin(held), nil
}

// Start records the process of a container that is about to start. The caller must then enforce the container's classes
// and call Finish. If a container was created while the plugin was not connected, Start admits the container to the
// classes that it requests. If this admission fails, Start returns an error. Some runtimes start the container
// nevertheless, so the request stays pending until the container ends.
func (s *Store) Start(h classes.Holder) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, known := s.ledger.Get(h.ID); !known {
		if err := s.adoptStarting(h); err != nil {
			s.endEnforcing(h.ID)
			return Entry{}, err
		}
	}

	held, _ := s.ledger.Get(h.ID)
	held = holding(h, held.Assignments)
	s.ledger.Adopt(held)
	s.modify(h.ID, func(r *record) { r.started = true })

	e := s.begin(held)
	// Observed is not empty if the container was created in a class that is not its desired class. The backend must then
	// move the container. Otherwise the runtime has already set the class, and the backend only verifies the class.
	e.Starting = len(e.Observed) == 0
	return e, nil
}

// adoptStarting adopts a container that is about to start and is not in the ledger: it was created while the plugin was
// not connected, or it was released because its creation seemed to have failed. In both cases it has no slots, and is
// admitted only if its classes have free slots. The caller holds mu.
func (s *Store) adoptStarting(h classes.Holder) error {
	has := recordedOn(h)
	err := s.adoptWithoutSlots(h, has)
	if err != nil {
		s.modify(h.ID, func(r *record) { r.refused = r.pending })
		return err
	}

	if has == nil {
		s.countAdopted(h.ID)
	}
	s.notify()
	return nil
}

// begin records that a hook is enforcing the classes of a holder. If the holder has no class, there is nothing to enforce, and
// begin only removes the holder's refusal. The caller holds mu.
func (s *Store) begin(h classes.Holding) Entry {
	enforced := false
	for _, a := range h.Assignments {
		enforced = enforced || a.Class != classes.SystemDefault
	}

	if enforced {
		s.modify(h.ID, func(r *record) { r.enforcing = true })
	} else {
		s.accept(h.Subject())
	}
	return s.entry(h)
}

// Finish records the result of a hook that enforces classes. The parameter `err` is nil if the hook has enforced all
// classes. If err is a ClaimError, only the class of a claim is not in force. Finish then reports err as a refusal and
// returns nil, and the reconciler retries. Finish records and counts any other error as a refusal, and returns this
// error.
func (s *Store) Finish(e Entry, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.modify(e.ID, func(r *record) { r.enforcing = false })
	_, ofClaim := errors.AsType[ClaimError](err)
	if err != nil && !ofClaim {
		s.modify(e.ID, func(r *record) { r.refused = true })
		s.observeAll(e.ID, func(string) string { return classes.SystemDefault }) // not verified
		return s.refuse(e.Holder, fmt.Errorf("%s: %w", e, err))
	}

	s.modify(e.ID, func(r *record) { r.inForce = s.now() })
	for resource := range s.records[e.ID].observed {
		s.observe(e.ID, resource, e.Class(resource))
		s.notify()
	}
	if ofClaim {
		s.observe(e.ID, classes.ClaimResource, classes.SystemDefault)
		s.notEnforced(e, err)
		return nil
	}
	s.accept(e.Subject())
	return nil
}

// Release frees the slots of a container or pod sandbox that has stopped or is removed. It may be called several
// times for the same ID, and for unknown IDs.
func (s *Store) Release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(id)
}

// ReleasePod frees the slots of a pod sandbox that has stopped or is removed, and of its containers. ReleasePod also
// releases containers whose creation the OCI runtime refused, because CRI-O does not report their end.
func (s *Store) ReleasePod(sandboxID string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for id := range s.records {
		if h, _ := s.ledger.Get(id); h.SandboxID == sandboxID {
			s.release(id)
		}
	}
}

// release removes a holder and its volumes, and the saved changes of the holder's classes. The caller holds mu.
func (s *Store) release(id string) {
	s.releaseVolumes(id)
	s.drop(id)
	s.changes.Forget(id)
}

// drop removes a holder from the ledger and the records. The caller holds mu.
func (s *Store) drop(id string) {
	h, known := s.ledger.Get(id)
	if !known {
		return
	}

	s.clearPending(h.Holder)
	s.ledger.Release(id)
	delete(s.records, id)
	s.signalDrained(h.Assignments)
	s.notify()
}
