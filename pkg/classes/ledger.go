// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

type slot struct{ resource, class string }

// Held is what a Ledger records: a Holding, or a type that embeds one and adds to it.
type Held interface{ Held() Holding }

// Held returns the holding itself.
func (h Holding) Held() Holding { return h }

// Ledger records which holder has which class. It is not safe for concurrent use.
type Ledger[H Held] struct {
	holders map[string]H
	// slots has the owners that occupy a slot of each class. The inner map has the number of holders and reservations
	// of each owner. An owner occupies one slot of a class, even if this number is above 1. slots lacks the system default.
	slots map[slot]map[qos.Subject]int
	// reserved maps the ID of a holder to the slots that it occupies in addition to those of its assignments.
	reserved map[string]reservation
}

type reservation struct {
	owner qos.Subject
	slots []slot
}

// NewLedger makes an empty ledger.
func NewLedger[H Held]() *Ledger[H] {
	return &Ledger[H]{holders: map[string]H{}, slots: map[slot]map[qos.Subject]int{}, reserved: map[string]reservation{}}
}

// Admit adds a holder, or replaces the holder with the same ID, if all of its classes have room. Otherwise it changes
// nothing. An owner that already has a class needs no second slot in it. Errors are *RequestError.
func (l *Ledger[H]) Admit(holder H, c *Catalog) error {
	h := holder.Held()
	for _, a := range h.Assignments {
		if err := l.checkRoom(h.Subject(), a, c); err != nil {
			return refuseHolder(h.Holder, err)
		}
	}
	l.Adopt(holder)
	return nil
}

// Adopt adds a holder without checks, because running containers are never refused. If the ledger has a holder with the
// same ID, Adopt replaces it.
func (l *Ledger[H]) Adopt(holder H) {
	h := holder.Held()
	if old, known := l.holders[h.ID]; known && old.Held().Subject() == h.Subject() && slices.Equal(old.Held().Assignments, h.Assignments) {
		l.holders[h.ID] = holder // the holder keeps its slots
		return
	}

	l.remove(h.ID)
	l.holders[h.ID] = holder
	for _, a := range h.Assignments {
		if a.Class != SystemDefault {
			l.occupy(slot{a.Resource, a.Class}, h.Subject())
		}
	}
}

// Reserve lets a holder occupy slots of these classes in addition to its own slots, until Settle or Release is called.
// It does not check whether the classes have room. Before a holder's class changes, its old and its new class are
// reserved, because the change may fail.
func (l *Ledger[H]) Reserve(id string, assignments []Assignment) {
	r := l.reserved[id]
	r.owner = l.holders[id].Held().Subject()
	for _, a := range assignments {
		if a.Class != SystemDefault {
			r.slots = append(r.slots, slot{a.Resource, a.Class})
			l.occupy(slot{a.Resource, a.Class}, r.owner)
		}
	}
	l.reserved[id] = r
}

// Reserved returns the classes that are reserved for a holder.
func (l *Ledger[H]) Reserved(id string) (reserved []Assignment) {
	for _, s := range l.reserved[id].slots {
		reserved = append(reserved, Assignment{Resource: s.resource, Class: s.class})
	}
	return reserved
}

// Settle removes a holder's reservations for the classes of a resource. It returns these classes.
func (l *Ledger[H]) Settle(id, resource string) (ended []Assignment) {
	r := l.reserved[id]
	r.slots = slices.DeleteFunc(slices.Clone(r.slots), func(s slot) bool {
		if s.resource != resource {
			return false
		}
		l.vacate(s, r.owner)
		ended = append(ended, Assignment{Resource: s.resource, Class: s.class})
		return true
	})

	if l.reserved[id] = r; len(r.slots) == 0 {
		delete(l.reserved, id)
	}
	return ended
}

// Release removes a holder and its reservations. An unknown ID is not an error.
func (l *Ledger[H]) Release(id string) {
	l.remove(id)
	r := l.reserved[id]
	delete(l.reserved, id)
	for _, s := range r.slots {
		l.vacate(s, r.owner)
	}
}

// remove removes a holder, but not its reservations.
func (l *Ledger[H]) remove(id string) {
	holder, ok := l.holders[id]
	if !ok {
		return
	}
	delete(l.holders, id)
	h := holder.Held()
	for _, a := range h.Assignments {
		if a.Class != SystemDefault {
			l.vacate(slot{a.Resource, a.Class}, h.Subject())
		}
	}
}

// Get returns a holder by its ID.
func (l *Ledger[H]) Get(id string) (H, bool) {
	h, ok := l.holders[id]
	return h, ok
}

// Where returns the holders for which the function `selected` returns true, sorted by pod, container and ID.
func (l *Ledger[H]) Where(selected func(H) bool) (holders []H) {
	for _, h := range l.holders {
		if selected(h) {
			holders = append(holders, h)
		}
	}
	slices.SortFunc(holders, func(a, b H) int { return compareHoldings(a.Held(), b.Held()) })
	return holders
}

// InUse returns the number of slots of a class that are in use: one for each owner. It returns 0 for the system default.
func (l *Ledger[H]) InUse(resource, class string) int {
	return len(l.slots[slot{CanonicalResource(resource), class}])
}

// Used returns the classes of a resource that are in use, each with its number of owners. The system default is left out.
func (l *Ledger[H]) Used(resource string) map[string]int {
	used := map[string]int{}
	for s, owners := range l.slots {
		if s.resource == resource {
			used[s.class] = len(owners)
		}
	}
	return used
}

func (l *Ledger[H]) occupy(s slot, owner qos.Subject) {
	if l.slots[s] == nil {
		l.slots[s] = map[qos.Subject]int{}
	}
	l.slots[s][owner]++
}

func (l *Ledger[H]) vacate(s slot, owner qos.Subject) {
	owners := l.slots[s]
	if owners[owner]--; owners[owner] > 0 {
		return
	}
	if delete(owners, owner); len(owners) == 0 {
		delete(l.slots, s)
	}
}

// checkRoom returns the reason why an owner cannot have an assignment. It never refuses a class that the owner already
// has, even if the catalog has changed.
func (l *Ledger[H]) checkRoom(owner qos.Subject, a Assignment, c *Catalog) error {
	owners := l.slots[slot{a.Resource, a.Class}]
	if a.Class == SystemDefault || owners[owner] > 0 {
		return nil
	}

	offer, ok := c.Lookup(a.Resource)
	if !ok {
		return c.unknownResource(a)
	}
	class, ok := offer.Class(a.Class)
	switch {
	case !ok:
		return c.unknownClass(offer, a)
	case class.Capacity == 0 || uint64(len(owners)) < class.Capacity:
		return nil
	}
	// Users read this error. It does not name the holders of the class, because these may be pods of other users.
	return refuse(Assignment{Resource: a.Resource, Class: a.Class}, ErrClassFull, "class %s of %s is full: %d of %d in use%s; available: %s",
		quote(a.Class), clip(a.Resource), len(owners), class.Capacity, ofThePod(owner, owners), list(l.withRoom(offer)))
}

// ofThePod describes how many slots the pod of an owner occupies itself. It returns "" if the pod occupies none.
func ofThePod(owner qos.Subject, owners map[qos.Subject]int) string {
	own := 0
	for other := range owners {
		if other.PodUID == owner.PodUID {
			own++
		}
	}

	switch own {
	case 0:
		return ""
	case len(owners):
		return ", all by this pod itself, which requests more"
	}
	return fmt.Sprintf(", %d of them by this pod itself", own)
}

// withRoom returns the classes of a resource that have a free slot.
func (l *Ledger[H]) withRoom(offer *Offer) []string {
	var names []string
	for _, class := range offer.Classes {
		used := uint64(l.InUse(offer.Name, class.Name))
		switch {
		case class.Capacity == 0:
			names = append(names, class.Name)
		case used < class.Capacity:
			names = append(names, fmt.Sprintf("%s (%d of %d free)", class.Name, class.Capacity-used, class.Capacity))
		}
	}
	return names
}

// Overlay returns base, changed by the assignments in over. An assignment in over replaces the assignment of the same
// resource in base. If `base` has no such assignment, Overlay appends it.
func Overlay(base, over []Assignment) []Assignment {
	after := slices.Clone(base)
	for _, o := range over {
		i := slices.IndexFunc(after, func(a Assignment) bool { return a.Resource == o.Resource })
		if i < 0 {
			after = append(after, o)
		} else {
			after[i] = o
		}
	}
	return after
}
