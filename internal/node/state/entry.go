// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// record is what is known of a holder beside its assignments, which the ledger has.
type record struct {
	// number orders the holders of one owner: the newest has the highest.
	number uint64
	// started is false until the first process is about to run. enforcing is true while a hook enforces its classes.
	started, enforcing bool
	// startTime is that of the first process, as first observed; 0 is unknown.
	startTime uint64
	// created are the classes that it was created in, which the runtime has stored.
	created []classes.Assignment
	// observed is the class of each resource that it was last observed in, where that is not the assigned one. It is replaced,
	// never modified.
	observed map[string]string
	// unverified is true for a pod that may have been created while the plugin was away, until the kernel was looked at.
	unverified bool
	// pending is true for a holder that runs without the classes that it requests, until it can have them.
	pending bool
	// request is kept for those that are unverified or pending; nil if it is too large.
	request *classes.Holder
	// stale is true when the runtime may have stored values that are not those of the assigned classes.
	stale bool
}

// Entry is one holder at one moment. Its assignments are the desired classes.
type Entry struct {
	classes.Holding
	// Created are the classes that it was created in, which the runtime has stored.
	Created []classes.Assignment
	// Observed is the class of each resource that it was last observed in, where that is not the desired one.
	Observed map[string]string
	// Number orders the holders of one owner: the newest has the highest.
	Number uint64
	// Started is false until the first process is about to run.
	Started bool
	// Unverified pods may have been created while the plugin was away.
	Unverified bool
	// Stale is true when the runtime may have stored values that are not those of the desired classes.
	Stale bool
}

// ObservedClass returns the class of a resource that the holder was last observed in.
func (e Entry) ObservedClass(resource string) string {
	if class, differs := e.Observed[resource]; differs {
		return class
	}
	return e.Class(resource)
}

func (s *Store) entry(h classes.Holding) Entry {
	r := s.records[h.ID]
	return Entry{
		Holding: h, Created: r.created, Observed: r.observed, Number: r.number, Started: r.started, Unverified: r.unverified, Stale: r.stale,
	}
}

// Get returns a holder by its ID.
func (s *Store) Get(id string) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.ledger.Get(id)
	return s.entry(h), ok
}

// Started returns the IDs of all holders that run, in a stable order, without those whose classes a hook enforces now.
func (s *Store) Started() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	var ids []string
	for _, h := range s.ledger.Holdings() {
		if r := s.records[h.ID]; r.started && !r.enforcing {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// Entries returns all holders, in any order.
func (s *Store) Entries() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries()
}

func (s *Store) entries() []Entry {
	entries := make([]Entry, 0, len(s.records))
	for id := range s.records {
		h, _ := s.ledger.Get(id)
		entries = append(entries, s.entry(h))
	}
	return entries
}

// newest returns the newest holder of an owner; its number is 0 when there is none. The caller holds mu.
func (s *Store) newest(owner classes.Owner) (newest Entry) {
	for id, r := range s.records {
		if h, _ := s.ledger.Get(id); h.Owner() == owner && r.number > newest.Number {
			newest = s.entry(h)
		}
	}
	return newest
}

// modify changes the record of a holder, if there is one. The caller holds mu.
func (s *Store) modify(id string, change func(*record)) {
	if r, known := s.records[id]; known {
		change(&r)
		s.records[id] = r
	}
}

// track begins the record of a holder that is in the ledger. The caller holds mu.
func (s *Store) track(id string, r record) {
	s.sequence++
	r.number = s.sequence
	s.records[id] = r
}

// SetStartTime records when the first process of a holder was started, and reports whether an earlier look showed another time, so
// another process.
func (s *Store) SetStartTime(id string, at uint64) (differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	before := s.records[id].startTime
	if before != 0 && at != 0 && at != before {
		return true
	}
	if at != 0 {
		s.modify(id, func(r *record) { r.startTime = at })
	}
	return false
}

// Observe records the class of a resource that a holder was observed in.
func (s *Store) Observe(id, resource, class string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	h, known := s.ledger.Get(id)
	if !known {
		return
	}
	before := s.entry(h).ObservedClass(resource)
	if before != class {
		s.observe(id, resource, class)
		s.notify()
	}
}

// observe records the observed class where it is not the assigned one. The caller holds mu.
func (s *Store) observe(id, resource, class string) {
	h, _ := s.ledger.Get(id)
	s.modify(id, func(r *record) {
		observed := maps.Clone(r.observed) // entries may have the old one
		if class == h.Class(resource) {
			delete(observed, resource)
		} else {
			if observed == nil {
				observed = map[string]string{}
			}
			observed[resource] = class
		}
		r.observed = observed
	})
}

// observeAll records the observed class of each assigned resource. The caller holds mu.
func (s *Store) observeAll(id string, observed func(resource string) string) {
	h, _ := s.ledger.Get(id)
	for _, a := range h.Assignments {
		s.observe(id, a.Resource, observed(a.Resource))
	}
}

// Updates returns the assignments that were made after the holder's creation.
func (e Entry) Updates() []classes.Assignment { return updates(e.Assignments) }

func updates(assignments []classes.Assignment) []classes.Assignment {
	return slices.DeleteFunc(slices.Clone(assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceUpdate })
}

// holding leaves out what is not kept for the life of a holder: its annotations, and the process of a sandbox, whose cgroup is not
// that of the pod.
func holding(h classes.Holder, assignments []classes.Assignment) classes.Holding {
	h.PodAnnotations, h.ContainerAnnotations = nil, nil
	if h.Container == "" {
		h.PID, h.SandboxID = 0, h.ID
	}
	return classes.Holding{Holder: h, Assignments: assignments}
}
