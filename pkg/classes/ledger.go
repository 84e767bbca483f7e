// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"slices"
)

type slot struct{ resource, class string }

// Ledger knows who has which class. It is not locked; its user guards it.
type Ledger struct {
	holders map[string]Holding
	// slots counts the holders of each owner. System default is not counted.
	slots map[slot]map[Owner]int
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{holders: map[string]Holding{}, slots: map[slot]map[Owner]int{}}
}

// Admit adds a holder if all of its classes have room, else nothing. An owner that has a class already needs no
// other slot in it. A holder with the same ID is replaced. Errors are *CapacityError, or *RequestError for a class
// that the catalog does not have.
func (l *Ledger) Admit(h Holding, c *Catalog) error {
	for _, a := range h.Assignments {
		if err := l.room(&h, a, c); err != nil {
			return err
		}
	}
	l.Adopt(h)
	return nil
}

// Adopt adds a holder without asking: what runs already is never refused. A holder with the same ID is replaced.
func (l *Ledger) Adopt(h Holding) {
	if old, known := l.holders[h.ID]; known && old.Owner() == h.Owner() && slices.Equal(old.Assignments, h.Assignments) {
		l.holders[h.ID] = h // its slots stay
		return
	}

	l.Release(h.ID)
	l.holders[h.ID] = h
	for _, a := range h.Assignments {
		l.take(slot{a.Resource, a.Class}, h.Owner())
	}
}

// Change gives a holder other classes of the resources in assignments, all or none, and returns all assignments it
// had before; those of other resources stay. To undo a change, Adopt the holder with them. Errors are as those of
// Admit, or ErrUnknownHolder.
func (l *Ledger) Change(id string, assignments []Assignment, c *Catalog) ([]Assignment, error) {
	h, ok := l.holders[id]
	if !ok {
		return nil, fmt.Errorf("change the classes of %s: %w", clip(id), ErrUnknownHolder)
	}
	before := h.Assignments
	h.Assignments = Overlay(before, assignments)
	if err := l.Admit(h, c); err != nil {
		return nil, err
	}
	return before, nil
}

// Release forgets a holder; it may be called again, and for unknown ones.
func (l *Ledger) Release(id string) {
	h, ok := l.holders[id]
	if !ok {
		return
	}
	delete(l.holders, id)
	for _, a := range h.Assignments {
		l.free(slot{a.Resource, a.Class}, h.Owner())
	}
}

// Get finds a holder by its ID.
func (l *Ledger) Get(id string) (Holding, bool) {
	h, ok := l.holders[id]
	return h, ok
}

// Holdings are sorted by pod, container and ID.
func (l *Ledger) Holdings() []Holding {
	all := make([]Holding, 0, len(l.holders))
	for _, h := range l.holders {
		all = append(all, h)
	}
	slices.SortFunc(all, compareHoldings)
	return all
}

// InUse is the number of owners that have a class. SystemDefault is not counted.
func (l *Ledger) InUse(resource, class string) int {
	return len(l.slots[slot{CanonicalResource(resource), class}])
}

// Used is the number of owners of each class of a resource that anybody has. SystemDefault is not counted.
func (l *Ledger) Used(resource string) map[string]int {
	used := map[string]int{}
	for s, owners := range l.slots {
		if s.resource == resource {
			used[s.class] = len(owners)
		}
	}
	return used
}

func (l *Ledger) take(s slot, owner Owner) {
	if s.class == SystemDefault {
		return
	}
	owners := l.slots[s]
	if owners == nil {
		owners = map[Owner]int{}
		l.slots[s] = owners
	}
	owners[owner]++
}

func (l *Ledger) free(s slot, owner Owner) {
	owners, taken := l.slots[s]
	if !taken {
		return // system default has no slots
	}
	if owners[owner]--; owners[owner] > 0 {
		return
	}
	if delete(owners, owner); len(owners) == 0 {
		delete(l.slots, s)
	}
}

// room says why a holder cannot have an assignment. What its owner has already is never refused, whatever the
// catalog says by now.
func (l *Ledger) room(h *Holding, a Assignment, c *Catalog) error {
	owners := l.slots[slot{a.Resource, a.Class}]
	if a.Class == SystemDefault || owners[h.Owner()] > 0 {
		return nil
	}
	offer, ok := c.Lookup(a.Resource)
	if !ok {
		return h.refuse(a, c.unknownResource(a.Resource))
	}
	class, ok := offer.Class(a.Class)
	if !ok {
		return h.refuse(a, offer.unknownClass(a.Class))
	}
	if class.Capacity == 0 || uint64(len(owners)) < class.Capacity {
		return nil
	}
	return &CapacityError{
		PodNamespace: h.PodNamespace, PodName: h.PodName, Container: h.Container, Resource: a.Resource,
		Class: a.Class, Capacity: class.Capacity, InUse: len(owners), Available: l.withRoom(offer),
	}
}

func (h *Holding) refuse(a Assignment, why refusal) error {
	return &RequestError{
		PodNamespace: h.PodNamespace, PodName: h.PodName, Container: h.Container,
		Resource: a.Resource, Class: a.Class, Key: a.Key, Problem: why.problem, Err: why.reason,
	}
}

// withRoom has the classes of a resource that have a free slot.
func (l *Ledger) withRoom(offer *Offer) []string {
	var names []string
	for _, class := range offer.Classes {
		used := uint64(len(l.slots[slot{offer.Name, class.Name}]))
		switch {
		case class.Capacity == 0:
			names = append(names, class.Name)
		case used < class.Capacity:
			names = append(names, fmt.Sprintf("%s (%d of %d free)", class.Name, class.Capacity-used, class.Capacity))
		}
	}
	return names
}

// Overlay returns base with the assignments of over in place of those for the same resources; those of other resources
// come last.
func Overlay(base, over []Assignment) []Assignment {
	after := slices.Clone(base)
	for _, o := range over {
		at := slices.IndexFunc(after, func(a Assignment) bool { return a.Resource == o.Resource })
		if at < 0 {
			after = append(after, o)
		} else {
			after[at] = o
		}
	}
	return after
}

// ClassOf returns the class of a resource among assignments; SystemDefault when there is none.
func ClassOf(assignments []Assignment, resource string) string {
	for _, a := range assignments {
		if a.Resource == resource {
			return a.Class
		}
	}
	return SystemDefault
}
