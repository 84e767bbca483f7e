// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxPendingSize is the maximum size, in bytes, of the annotations that the store keeps for a pending request.
const maxPendingSize = 16 << 10

func errCreatedWithout(err error) error {
	return fmt.Errorf("%w; the container or pod was created without the class, because qos-nri-plugin was not connected to the runtime", err)
}

// requestOf returns a copy of a holder that has only the annotations that request classes. The store keeps this copy to
// admit the holder later. If these annotations are too large, requestOf returns nil.
func requestOf(h classes.Holder) *classes.Holder {
	if h = h.WithoutUnusedAnnotations(); h.AnnotationsSize() > maxPendingSize {
		return nil
	}
	return &h
}

// postpone marks the request of a running holder as pending. As long as the request is pending, the holder is reported
// as refused for the reason err. postpone returns the refusal. If err is nil, postpone does nothing. The caller holds mu.
func (s *Store) postpone(h classes.Holder, err error) error {
	if err == nil {
		return nil
	}
	request := requestOf(h)
	s.modify(h.ID, func(r *record) { r.request, r.pending = request, request != nil })
	return s.refuse(h, errCreatedWithout(err))
}

// clearPending removes the pending request of a holder, and the holder's reported refusal. If the start of the holder was
// refused, the refusal stays until Observe shows that the holder runs in its classes. The caller holds mu.
func (s *Store) clearPending(h classes.Holder) {
	r := s.records[h.ID]
	if !r.pending {
		return
	}

	s.modify(h.ID, func(r *record) { r.request, r.pending = nil, false })
	if !r.refused {
		s.accept(h.Subject())
	}
}

// Refresh updates the desired classes of a holder. It replaces default classes by the current defaults, and retries a
// pending request. It does not change assignments that an update made.
func (s *Store) Refresh(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.followDefaults(id)
	s.retryPending(id)
}

// followDefaults assigns the current default classes to a holder, for the resources that the holder did not request.
// The caller holds mu.
func (s *Store) followDefaults(id string) {
	before, known := s.ledger.Get(id)
	if !known {
		return
	}

	after := before
	after.Assignments = classes.Overlay(before.Assignments, s.defaults(before))
	if slices.Equal(before.Assignments, after.Assignments) {
		return
	}

	s.replace(before, after)
	s.signalDrained(before.Assignments)
}

// retryPending admits a pending request if all requested classes now have a free slot. The caller holds mu.
func (s *Store) retryPending(id string) {
	before, known := s.ledger.Get(id)
	r := s.records[id]
	if !known || !r.pending {
		return
	}

	after := before
	wanted, err := s.catalog.Resolve(*r.request)
	if err == nil {
		after.Assignments = classes.Overlay(wanted, updates(before.Assignments))
		err = s.ledger.Admit(after, s.catalog)
	}
	if err != nil {
		s.refuseAgain(before.Holder, errCreatedWithout(err))
		return
	}

	s.replace(before, after)
	s.clearPending(before.Holder)
}

// replace changes the desired classes of a holder, and does not change its observed classes. The caller holds mu.
func (s *Store) replace(before, after classes.Holding) {
	observed := s.entry(before).ObservedClass
	s.ledger.Adopt(after)
	s.observeAll(after.ID, observed)
	s.notify()
}

// defaults returns the default assignments for the resources that a holder did not request. The caller holds mu.
func (s *Store) defaults(h classes.Holding) []classes.Assignment {
	requested := func(resource string) bool {
		i := slices.IndexFunc(h.Assignments, func(a classes.Assignment) bool { return a.Resource == resource })
		return i >= 0 && isRequested(h.Assignments[i])
	}

	var now []classes.Assignment
	for _, offer := range s.catalog.Offers() {
		if offer.Scope == h.Scope() && offer.Scope != classes.VolumeScope && !requested(offer.Name) {
			now = append(now, offer.Default(h.RuntimeHandler))
		}
	}
	for _, a := range h.Assignments {
		if a.Source == classes.SourceDefault && !s.configured(a.Resource) {
			now = append(now, classes.Assignment{Resource: a.Resource}) // the default of a removed resource ends at once, instead of draining
		}
	}
	return now
}

func isRequested(a classes.Assignment) bool { return a.IsRequested() }

// Verified records which unverified pods and volumes are in the classes that they request. The parameter `inClass` lists
// those that are in these classes, and the parameter `elsewhere` lists those that may be in other classes. Verified
// admits the second list to the requested classes if these classes have free slots, and returns those that it could not
// admit.
func (s *Store) Verified(inClass, elsewhere []string) (failed []FailedAdoption) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, id := range inClass {
		s.setVerified(id)
	}

	var late []classes.Holding
	for _, id := range elsewhere {
		if held, known := s.ledger.Get(id); known {
			late = append(late, held)
			s.ledger.Release(id) // release all before admitting any, so that none keeps a slot that it was not admitted to
		}
	}
	for _, held := range late {
		failed = append(failed, s.readmit(held)...)
	}
	return failed
}

// readmit admits a pod or volume to the classes that it requests. If the admission fails, a pod gets the defaults, and a
// volume keeps the class of its claim. The caller holds mu.
func (s *Store) readmit(held classes.Holding) (failed []FailedAdoption) {
	request := held.Holder
	if r := s.records[held.ID]; r.request != nil {
		request = *r.request
	}
	s.setVerified(held.ID)

	err := s.ledger.Admit(held, s.catalog)
	if err == nil {
		return nil
	}

	_ = s.postpone(request, err)
	claimed := slices.DeleteFunc(slices.Clone(held.Assignments), func(a classes.Assignment) bool { return a.Source != classes.SourceClaim })
	held.Assignments = append(claimed, s.defaults(holding(held.Holder, nil))...)
	s.ledger.Adopt(held)
	s.notify()
	return []FailedAdoption{{request, err}}
}

func (s *Store) setVerified(id string) {
	s.modify(id, func(r *record) {
		r.unverified = false
		if !r.pending {
			r.request = nil
		}
	})
}
