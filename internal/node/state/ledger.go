// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type slot struct{ resource, class string }

// ledger records which holder has which class. It is not safe for concurrent use.
type ledger struct {
	holders map[string]*Holding
	// `groups` has the IDs of the holders of each group.
	groups map[group][]string
	// `slots` has the owners that occupy a slot of each class. The inner map has the number of holders and reservations
	// of each owner. An owner occupies one slot of a class, even if this number is above 1. The system default is
	// missing.
	slots map[slot]classes.Owners
	// `reserved` maps the ID of a holder to the slots that the holder occupies in addition to those of its assignments.
	reserved map[string]reservation
}

// group is a pod with its containers and volumes, or a container with its volumes. The other field is empty.
type group struct{ podUID, containerID string }

type reservation struct {
	owner qos.Subject
	slots []slot
}

// newLedger makes an empty ledger.
func newLedger() *ledger {
	return &ledger{holders: map[string]*Holding{}, groups: map[group][]string{}, slots: map[slot]classes.Owners{}, reserved: map[string]reservation{}}
}

// Admit adds holders, or replaces those with the same IDs, if all of their classes have free slots. Otherwise it adds
// none. An owner that already has a class needs no second slot in it. Errors are *RequestError.
func (l *ledger) Admit(c *classes.Catalog, holders ...Holding) error {
	for i, h := range holders {
		if err := l.checkRoom(c, h); err != nil {
			for _, admitted := range holders[:i] {
				l.Release(admitted.ID)
			}
			return err
		}
		l.Adopt(h)
	}
	return nil
}

func (l *ledger) checkRoom(c *classes.Catalog, h Holding) error {
	for _, a := range h.Assignments {
		if err := c.CheckRoom(h.Holder, a, func(class string) classes.Owners { return l.slots[slot{a.Resource, class}] }); err != nil {
			return err
		}
	}
	return nil
}

// Adopt adds a holder without checks, because running containers are never refused. If the ledger has a holder with the
// same ID, Adopt replaces it.
func (l *ledger) Adopt(h Holding) {
	if old, known := l.holders[h.ID]; known && old.Subject() == h.Subject() && slices.Equal(old.Assignments, h.Assignments) {
		*old = h // the holder keeps its slots
		return
	}

	l.remove(h.ID)
	l.holders[h.ID] = &h
	for _, g := range h.groups() {
		l.groups[g] = append(l.groups[g], h.ID)
	}
	for _, a := range h.Assignments {
		if a.Class != classes.SystemDefault {
			l.occupy(slot{a.Resource, a.Class}, h.Subject())
		}
	}
}

// Reserve lets a holder occupy slots of these classes in addition to its own slots, until Settle or Release is called.
// It does not check whether the classes have room. Before a holder's class changes, its old and its new class are
// reserved, because the change may fail.
func (l *ledger) Reserve(id string, assignments []classes.Assignment) {
	r := l.reserved[id]
	holder, _ := l.Get(id)
	r.owner = holder.Subject()
	for _, a := range assignments {
		if a.Class != classes.SystemDefault {
			r.slots = append(r.slots, slot{a.Resource, a.Class})
			l.occupy(slot{a.Resource, a.Class}, r.owner)
		}
	}
	l.reserved[id] = r
}

// Reserved returns the classes that are reserved for a holder.
func (l *ledger) Reserved(id string) (reserved []classes.Assignment) {
	for _, s := range l.reserved[id].slots {
		reserved = append(reserved, classes.Assignment{Resource: s.resource, Class: s.class})
	}
	return reserved
}

// Settle removes a holder's reservations for the classes of a resource. It returns these classes.
func (l *ledger) Settle(id, resource string) (ended []classes.Assignment) {
	r := l.reserved[id]
	r.slots = slices.DeleteFunc(slices.Clone(r.slots), func(s slot) bool {
		if s.resource != resource {
			return false
		}
		l.vacate(s, r.owner)
		ended = append(ended, classes.Assignment{Resource: s.resource, Class: s.class})
		return true
	})

	if l.reserved[id] = r; len(r.slots) == 0 {
		delete(l.reserved, id)
	}
	return ended
}

// Release removes a holder and its reservations. An unknown ID is not an error.
func (l *ledger) Release(id string) {
	l.remove(id)
	r := l.reserved[id]
	delete(l.reserved, id)
	for _, s := range r.slots {
		l.vacate(s, r.owner)
	}
}

// remove removes a holder, but not its reservations.
func (l *ledger) remove(id string) {
	h, ok := l.holders[id]
	if !ok {
		return
	}
	delete(l.holders, id)
	for _, g := range h.groups() {
		l.groups[g] = slices.DeleteFunc(l.groups[g], func(other string) bool { return other == id })
		if len(l.groups[g]) == 0 {
			delete(l.groups, g)
		}
	}
	for _, a := range h.Assignments {
		if a.Class != classes.SystemDefault {
			l.vacate(slot{a.Resource, a.Class}, h.Subject())
		}
	}
}

// Get returns a holder by its ID.
func (l *ledger) Get(id string) (Holding, bool) {
	if h, ok := l.holders[id]; ok {
		return *h, true
	}
	return Holding{}, false
}

// Where returns the holders for which the function `selected` returns true, sorted by pod, container and ID. The function
// must not change or keep the holders that it gets.
func (l *ledger) Where(selected func(*Holding) bool) []Holding {
	var found []sortKey
	for _, h := range l.holders {
		if selected(h) {
			found = append(found, h.sortKey())
		}
	}
	return l.sorted(found)
}

// InGroup works like Where for the holders of a group. The hooks use it, so that their duration does not depend on the number of containers.
func (l *ledger) InGroup(g group, selected func(*Holding) bool) []Holding {
	var found []sortKey
	for _, id := range l.groups[g] {
		if h := l.holders[id]; selected(h) {
			found = append(found, h.sortKey())
		}
	}
	return l.sorted(found)
}

// sorted returns the holders with these keys. It sorts the keys, because holders are large.
func (l *ledger) sorted(found []sortKey) (holders []Holding) {
	slices.SortFunc(found, sortKey.compare)
	holders = slices.Grow(holders, len(found))
	for _, key := range found {
		holders = append(holders, *l.holders[key.id])
	}
	return holders
}

// InUse returns the number of slots of a class that are in use, one for each owner. It returns 0 for the system
// default.
func (l *ledger) InUse(resource, class string) int {
	return len(l.slots[slot{classes.CanonicalResource(resource), class}])
}

// Used returns the number of owners of each class of a resource that is in use, without the system default.
func (l *ledger) Used(resource string) map[string]int {
	used := map[string]int{}
	for s, owners := range l.slots {
		if s.resource == resource {
			used[s.class] = len(owners)
		}
	}
	return used
}

func (l *ledger) occupy(s slot, owner qos.Subject) {
	if l.slots[s] == nil {
		l.slots[s] = classes.Owners{}
	}
	l.slots[s][owner]++
}

func (l *ledger) vacate(s slot, owner qos.Subject) {
	owners := l.slots[s]
	if owners[owner]--; owners[owner] > 0 {
		return
	}
	if delete(owners, owner); len(owners) == 0 {
		delete(l.slots, s)
	}
}

// sortKey has the fields by which holders are sorted.
type sortKey struct{ namespace, pod, podUID, container, id string }

func (h *Holding) sortKey() sortKey {
	return sortKey{h.PodNamespace, h.PodName, h.PodUID, h.Container, h.ID}
}

func (k sortKey) compare(other sortKey) int {
	return cmp.Or(
		strings.Compare(k.namespace, other.namespace),
		strings.Compare(k.pod, other.pod),
		strings.Compare(k.podUID, other.podUID),
		strings.Compare(k.container, other.container),
		strings.Compare(k.id, other.id),
	)
}
