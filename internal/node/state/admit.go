// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// errCreatedWithoutPlugin refuses the start of a container that was created without its classes.
var errCreatedWithoutPlugin = errors.New("the container was created while qos-nri-plugin was not connected to the runtime, " +
	"so without this class; it has to be recreated")

// Admit gives a container that is about to be created its classes, and returns what the runtime must set for them. On error
// nothing is assigned.
func (s *Store) Admit(h classes.Holder) (classes.Adjustment, []classes.Assignment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, err := s.admit(h)
	if err != nil {
		return classes.Adjustment{}, nil, s.refuse(h, err)
	}
	adjustment, err := s.adjustment(held.Assignments)
	if err != nil {
		s.ledger.Release(h.ID)
		return classes.Adjustment{}, nil, s.refuse(h, fmt.Errorf("%s: %w", h, err))
	}

	s.track(h.ID, record{created: held.Assignments})
	s.notify()
	return adjustment, held.Assignments, nil
}

// admit gives a holder the classes that it requests, if there is room. The caller holds mu.
func (s *Store) admit(h classes.Holder) (classes.Holding, error) {
	assignments, err := s.catalog.Resolve(h)
	if err != nil {
		return classes.Holding{}, err
	}
	held := holding(h, assignments)
	return held, s.ledger.Admit(held, s.catalog)
}

// adjustment merges the backends' adjustments for the classes of a new holder. The caller holds mu.
func (s *Store) adjustment(assignments []classes.Assignment) (classes.Adjustment, error) {
	var all classes.Adjustment
	for _, a := range assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		one, err := s.resources[a.Resource].Adjust(classes.SystemDefault, a.Class)
		if err != nil {
			return classes.Adjustment{}, fmt.Errorf("class %q of %s: %w", a.Class, a.Resource, err)
		}
		all = all.Merge(one)
	}
	return all, nil
}

// AdmitPod gives a pod that is about to run its pod-scope classes. The caller must enforce them and call Finish.
func (s *Store) AdmitPod(h classes.Holder) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, err := s.admit(h)
	if err != nil {
		return Entry{}, s.refuse(h, err)
	}

	s.track(h.ID, record{started: true})
	for id := range s.records {
		if other, _ := s.ledger.Get(id); id != h.ID && other.Owner() == held.Owner() {
			s.release(id) // an earlier sandbox is dead, and its cgroup is now this one's
		}
	}
	s.notify()
	return s.begin(held), nil
}

// Start records the process of a container that is about to start. The caller must enforce its classes and call Finish. A
// container that was created while the plugin was away is refused if it requests a class; the kubelet then creates a new one.
func (s *Store) Start(h classes.Holder) (Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, known := s.ledger.Get(h.ID)
	if !known {
		assignments, err := s.defaultsOnly(h)
		if err != nil {
			return Entry{}, s.refuse(h, err)
		}
		held.Assignments = assignments
		s.track(h.ID, record{})
	}

	held = holding(h, held.Assignments)
	s.ledger.Adopt(held)
	s.modify(h.ID, func(r *record) { r.started = true })
	if !known {
		s.observeAll(h.ID, func(string) string { return classes.SystemDefault })
		s.notify()
	}

	e := s.begin(held)
	// A container that was created in another class is moved. For others the runtime has set the class, and it is verified.
	e.Starting = len(e.Observed) == 0
	return e, nil
}

// defaultsOnly returns the assignments of a container that was created without the plugin, if all of them are defaults.
func (s *Store) defaultsOnly(h classes.Holder) ([]classes.Assignment, error) {
	assignments, err := s.catalog.Resolve(h)
	if err != nil {
		return nil, err
	}
	for _, a := range assignments {
		if a.Class != classes.SystemDefault && a.Source != classes.SourceDefault {
			return nil, fmt.Errorf("%s: class %q of %s: %w", h, a.Class, a.Resource, errCreatedWithoutPlugin)
		}
	}
	return assignments, nil
}

// begin records that a hook enforces the classes of a holder, if it has any class. The caller holds mu.
func (s *Store) begin(h classes.Holding) Entry {
	enforced := false
	for _, a := range h.Assignments {
		enforced = enforced || a.Class != classes.SystemDefault
	}

	if enforced {
		s.modify(h.ID, func(r *record) { r.enforcing = true })
	} else {
		s.accept(h.Owner())
	}
	return s.entry(h)
}

// Finish records the result of the enforcement by a hook, and returns an error as a refusal.
func (s *Store) Finish(e Entry, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.modify(e.ID, func(r *record) { r.enforcing = false })
	if err != nil {
		return s.refuse(e.Holder, fmt.Errorf("%s: %w", e, err))
	}

	for resource := range s.records[e.ID].observed {
		s.observe(e.ID, resource, e.Class(resource))
		s.notify()
	}
	s.accept(e.Owner())
	return nil
}

// Release frees the slots of a container or pod sandbox that has stopped or is removed. It may be called any number of times,
// and for unknown IDs.
func (s *Store) Release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(id)
}

// release forgets a holder. The caller holds mu.
func (s *Store) release(id string) {
	h, known := s.ledger.Get(id)
	if !known {
		return
	}

	s.clearPending(h.Holder)
	s.ledger.Release(id)
	delete(s.records, id)
	s.changes.Forget(id)
	s.signalDrained(h.Assignments)
	s.notify()
}
