// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"

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
// the holder is in its desired class. Because the old slots stay occupied, a failed change is reverted without admission.
func (s *Store) Change(subject qos.Subject, requests map[string]string) (before Holding, changes []classes.Assignment, err error) {
	defer s.lock()()
	n := &s.node

	before, err = n.table.running(subject)
	if err != nil {
		return before, nil, err
	}
	changes, err = n.live.changesOf(before.Holding, requests)
	if err != nil {
		return before, nil, fmt.Errorf("%s: %w", before, err)
	}
	after := before
	next := classes.Overlay(before.Assignments, changes)
	after.endReports(next)
	after.Assignments = next
	if err := n.table.Admit(n.live.Catalog, after); err != nil {
		return before, nil, n.countRefusal(err)
	}

	for _, a := range changes {
		if class := before.Class(a.Resource); class != a.Class {
			n.table.Reserve(before.ID, []classes.Assignment{a, {Resource: a.Resource, Class: class}})
		}
	}
	n.changed = true
	return before, changes, nil
}

// Confirm records that a change has been enforced. It assigns the classes again, because they may have been replaced
// during the change.
func (s *Store) Confirm(id string, changes []classes.Assignment) {
	defer s.lock()()
	n := &s.node

	n.update(id, func(h *Holding) {
		h.Assignments = classes.Overlay(h.Assignments, changes)
		for _, a := range changes {
			h.observe(a.Resource, a.Class)
		}
	})
	for _, a := range changes {
		n.left(n.table.Settle(id, a.Resource))
	}
	n.changed = true
}

// Observe records that a holder was observed in a class of a resource. If this is the desired class, Observe frees the slots
// that a failed change still reserves. It keeps them while the stored values are stale, because the runtime may still make
// that change. If the holder runs in all its classes although its start was refused, Observe ends the refusal.
func (s *Store) Observe(id, resource, class string) {
	defer s.lock()()
	n := &s.node

	if h, _ := n.table.Get(id); class == h.Class(resource) && h.Stored != StoredStale {
		ended := n.table.Settle(id, resource)
		n.left(ended)
		n.changed = n.changed || len(ended) > 0
	}
	if h, _ := n.table.Get(id); h.ObservedClass(resource) == class && h.Phase == Running && h.Request == nil {
		return // nothing changes
	}
	n.update(id, func(h *Holding) {
		if h.observe(resource, class); len(h.Observed) == 0 {
			h.happens(inClasses)
		}
	})
}
