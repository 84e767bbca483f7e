// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// The node API maps these errors to gRPC status codes.
var (
	ErrNotFound     = errors.New("not found")
	ErrNotRunning   = errors.New("not running yet")
	ErrImmutable    = errors.New("the class of a running container or pod cannot be changed")
	ErrNotConnected = errors.New("not connected to the container runtime")
	// ErrRuntimeBusy means that a request was not sent to the runtime.
	ErrRuntimeBusy = errors.New("the container runtime has not answered an earlier request")
	// ErrUnanswered means that the runtime got a request but has not answered. It may carry out the request later.
	ErrUnanswered = errors.New("the container runtime has not answered, and may still make the change")
)

// Change admits a running holder to the requested classes, either to all of them or to none (KEP-3008,
// "UpdateContainerResourcesRequest"). The keys of requests are full or short names of resources. Change returns the
// holder as it was before the change.
//
// The holder occupies slots of its old and of its new classes until Confirm is called, or until Observe records that
// the holder is in its desired class. Because the old slots stay occupied, Revert needs no admission.
func (s *Store) Change(owner qos.Subject, requests map[string]string) (before Entry, changes []classes.Assignment, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	before, err = s.running(owner)
	if err != nil {
		return before, nil, err
	}
	changes, err = s.changesOf(before.Holding, requests)
	if err != nil {
		return before, nil, fmt.Errorf("%s: %w", before, err)
	}
	if _, err := s.ledger.Change(before.ID, changes, s.catalog); err != nil {
		return before, nil, s.countRefusal(err)
	}

	for _, a := range changes {
		if class := before.Class(a.Resource); class != a.Class {
			s.ledger.Reserve(before.ID, []classes.Assignment{a, {Resource: a.Resource, Class: class}})
		}
	}
	s.notify()
	return before, changes, nil
}

// running returns the newest holder of an owner. It returns an error if that holder is not running. The caller holds mu.
func (s *Store) running(owner qos.Subject) (Entry, error) {
	e := s.newest(owner)
	switch {
	case e.Number == 0:
		return e, fmt.Errorf("%s: %w on this node", owner, ErrNotFound)
	case !e.Started:
		return e, fmt.Errorf("%s: %w", e, ErrNotRunning)
	}
	return e, nil
}

// changesOf returns the assignments that an update requests. It returns an error if the class of a requested resource
// cannot be changed. The caller holds mu.
func (s *Store) changesOf(h classes.Holding, requests map[string]string) ([]classes.Assignment, error) {
	scope := h.Scope()
	var changes []classes.Assignment
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		class := requests[name]
		offer, ok := s.catalog.Lookup(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: %q; this node has %s", classes.ErrUnknownResource, name, s.resourceList())
		case offer.Scope != scope:
			return nil, fmt.Errorf("%s is for %ss, not for %ss: %w", offer.Name, offer.Scope, scope, classes.ErrBadRequest)
		case !offer.Mutable:
			return nil, fmt.Errorf("%s: %w", offer.Name, ErrImmutable)
		case class != classes.SystemDefault && offer.Unavailable != nil:
			return nil, fmt.Errorf("%s: %w: %w", offer.Name, classes.ErrUnavailable, offer.Unavailable)
		}
		if err := s.checkMutable(h.Holder, offer.Name, h.Class(offer.Name), class); err != nil {
			return nil, err
		}
		changes = append(changes, classes.Assignment{Resource: offer.Name, Class: class, Source: classes.SourceUpdate})
	}
	return changes, nil
}

func (s *Store) resourceList() string {
	offers := s.catalog.Offers()
	names := make([]string, 0, len(offers))
	for _, offer := range offers {
		names = append(names, offer.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Confirm records that a change has been enforced. It assigns the classes again, because a synchronization during the
// change may have replaced them.
func (s *Store) Confirm(id string, changes []classes.Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()

	held, known := s.ledger.Get(id)
	if !known {
		return
	}
	held.Assignments = classes.Overlay(held.Assignments, changes)
	s.ledger.Adopt(held)
	for _, a := range changes {
		s.observe(id, a.Resource, a.Class)
		s.settle(id, a.Resource)
	}
	s.notify()
}

// settle frees the slots that a change of a resource has reserved. It reports whether it freed any slot. The caller holds mu.
func (s *Store) settle(id, resource string) bool {
	ended := s.ledger.Settle(id, resource)
	s.signalDrained(ended)
	return len(ended) > 0
}

// Revert restores the desired classes that a holder had before a change, if the holder still exists. The holder keeps the
// slots of its old and its new classes until Observe records that the holder is in the old class.
func (s *Store) Revert(before classes.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if _, known := s.ledger.Get(before.ID); known {
		s.ledger.Adopt(before)
		s.notify()
	}
}
