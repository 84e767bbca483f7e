// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// all returns all holdings, in a stable order.
func (l *ledger) all() []Holding { return l.Where(func(*Holding) bool { return true }) }

// newest returns the newest holding of a subject. Its number is 0 if there is none.
func (l *ledger) newest(subject qos.Subject) (newest Holding) {
	for _, h := range l.InGroup(group{podUID: subject.PodUID}, func(h *Holding) bool { return h.Subject() == subject }) {
		if h.Number > newest.Number {
			newest = h
		}
	}
	return newest
}

// running returns the newest holder of a subject. It returns an error if that holder is not running.
func (l *ledger) running(subject qos.Subject) (Holding, error) {
	h := l.newest(subject)
	switch {
	case h.Number == 0:
		return h, fmt.Errorf("%s: %w on this node", subject, ErrNotFound)
	case !h.Phase.Started():
		return h, fmt.Errorf("%s: %w", h, ErrNotRunning)
	}
	return h, nil
}

// isReplaced reports whether another holding of the same subject has the classes that it requests.
func (l *ledger) isReplaced(id string, subject qos.Subject) bool {
	newest := l.newest(subject)
	return newest.ID != "" && newest.ID != id && !newest.Phase.isWaiting() && newest.Phase != Ending
}

// volumesOf returns the volumes of a container.
func (l *ledger) volumesOf(containerID string) []Holding {
	return l.InGroup(group{containerID: containerID}, func(h *Holding) bool { return h.Volume != "" })
}

// update changes a holding. An unknown ID is not an error.
func (n *node) update(id string, change func(*Holding)) {
	before, known := n.table.Get(id)
	if !known {
		return
	}
	after := before
	change(&after)
	n.table.Adopt(after)
	n.follow(before, after)
}

// follow records the effects of the change of a holding: the end of a refusal, the departure from a class that is no
// longer offered, and the change of a reported state.
func (n *node) follow(before, after Holding) {
	if before.Phase.isRefused() && !after.Phase.isRefused() {
		n.accept(after)
	}
	if !slices.Equal(before.Assignments, after.Assignments) {
		n.left(before.Assignments)
		n.changed = true
	}
	if !maps.Equal(before.Observed, after.Observed) || !maps.Equal(before.Foreign, after.Foreign) ||
		!maps.Equal(before.Stale, after.Stale) || !maps.Equal(before.Limited, after.Limited) ||
		!maps.Equal(before.NotEnforced, after.NotEnforced) || !maps.Equal(before.Spec.Originals, after.Spec.Originals) {
		n.changed = true
	}
}

// left records that a holder has left classes.
func (n *node) left(assignments []classes.Assignment) {
	n.released = n.released || slices.ContainsFunc(assignments, n.live.Drains)
}

// accept removes the refusal of a holder that got its classes or has ended. It keeps the refusal if a newer holder of
// the same subject caused it.
func (n *node) accept(h Holding) {
	newest := n.table.newest(h.Subject())
	if newest.Number > h.Number && newest.Phase.isRefused() {
		return
	}
	if n.refused.remove(h.Subject()) {
		n.changed = true
	}
}
