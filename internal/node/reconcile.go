// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Reconcile brings what runs into the classes that the ledger says: whoever has a default gets the default of now, and
// where the kernel shows another class, the right one is enforced. It is to be called after Synchronize and Configure,
// outside of hooks. What cannot be mended keeps its slot, is reported as it is, and is tried again at the next Inspect. It
// returns how many containers and pods it has mended.
func (n *Node) Reconcile(ctx context.Context) (mended int) {
	if err := n.changing.take(ctx); err != nil {
		return 0
	}
	defer n.changing.leave()
	n.reconcile(ctx, func(classes.Holding, []step) { mended++ })
	return mended
}

// reconcile tells of each holder that it has brought into its classes, and by which steps.
func (n *Node) reconcile(ctx context.Context, mended func(classes.Holding, []step)) {
	n.away = nil
	n.provePods(ctx)
	for _, id := range n.startedIDs() {
		if ctx.Err() != nil {
			return
		}
		n.followDefaults(id)
		n.claim(id)
		n.restore(ctx, id)
		n.mend(ctx, id, mended)
	}
	if n.away != nil && ctx.Err() == nil {
		n.log.Warn("the runtime cannot be told of changes; it is tried again", "error", n.away)
	}
}

func (n *Node) startedIDs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []string
	for _, h := range n.ledger.Holdings() {
		if t := n.tracked[h.ID]; t.started && !t.enforcing {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// mend enforces what the kernel does not show of a holder's classes.
func (n *Node) mend(ctx context.Context, id string, mended func(classes.Holding, []step)) {
	holder, t, known := n.live(id)
	if !known {
		return
	}
	steps, err := n.deviations(ctx, holder, t)
	if n.hasEnded(id, t) || errors.Is(err, classes.ErrEnded) || errors.Is(err, fs.ErrNotExist) && holder.Owner().Container == "" {
		n.log.Debug("ended without a word of the runtime", "container", describe(holder))
		n.Stop(id)
		return
	}
	if len(steps) == 0 {
		return
	}
	if err := n.take(ctx, t.target, steps); err != nil {
		n.sayAstray(holder, t, steps, err)
		n.look(ctx, holder.ID, steps)
		return
	}
	n.arrived(id, steps)
	mended(holder, steps)
}

// hasEnded says whether a container's first process is not there any more, whoever has its number now.
func (n *Node) hasEnded(id string, t tracked) bool {
	if n.startTime == nil || t.target.PID <= 0 || t.target.Container == "" {
		return false
	}
	at, exists := n.startTime(t.target.PID)
	if !exists || t.began != 0 && at != 0 && at != t.began {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if now, known := n.tracked[id]; known && at != 0 {
		now.began = at
		n.tracked[id] = now
	}
	return false
}

// sayAstray logs what could not be brought into its class; again and again only for those who look closely.
func (n *Node) sayAstray(holder classes.Holding, t tracked, steps []step, err error) {
	log := n.log.Debug
	for _, s := range steps {
		if _, astray := t.astray[s.resource]; !astray {
			log = n.log.Warn
		}
	}
	log("what runs could not be brought into its class; it is tried again", "container", describe(holder), "error", err)
}

// deviations compares a holder's classes with what the kernel shows. What cannot be seen counts as right, unless
// it is known to be wrong.
func (n *Node) deviations(ctx context.Context, holder classes.Holding, t tracked) (steps []step, err error) {
	for _, a := range holder.Assignments {
		n.mu.Lock()
		backend, there := n.backends[a.Resource]
		n.mu.Unlock()
		if !there {
			continue // nothing is there to enforce it with
		}
		class, ok, observeErr := backend.Observe(ctx, t.target, a.Class)
		from, astray := t.astray[a.Resource]
		switch {
		case observeErr != nil:
			err = errors.Join(err, observeErr)
		case ok && class == a.Class:
			n.arrived(holder.ID, []step{{resource: a.Resource, to: a.Class}})
		case backend.unavailable != nil:
			n.lost(holder.ID, a, class, ok)
		case ok && n.drains(a):
			steps = append(steps, step{resource: a.Resource, from: a.Class, to: a.Class}) // into it again, since nothing new gets in
		case ok:
			steps = append(steps, step{resource: a.Resource, from: class, to: a.Class})
		case astray:
			steps = append(steps, step{resource: a.Resource, from: from, to: a.Class})
		case a.Class != classes.SystemDefault && !n.drains(a):
			steps = append(steps, step{resource: a.Resource, from: a.Class, to: a.Class})
		}
	}
	return steps, err
}

// lost notes where a holder is while the machine does not have a resource.
func (n *Node) lost(id string, want classes.Assignment, class string, seen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, known := n.ledger.Get(id)
	if before, astray := n.tracked[id].astray[want.Resource]; known && seen && (!astray || before != class) {
		n.found(id, want, class)
		n.notify()
	}
}

// drains says whether a class is not offered any more.
func (n *Node) drains(a classes.Assignment) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return a.Class != classes.SystemDefault && !n.offered(a)
}

// look notes in which classes a holder is after steps that failed: as the kernel shows, or else as before.
func (n *Node) look(ctx context.Context, id string, steps []step) {
	ctx = context.WithoutCancel(ctx)
	_, t, _ := n.live(id)
	for _, s := range steps {
		class := s.from
		if s.from == s.to {
			class = classes.SystemDefault // all of the class that may be missing
		}
		if backend, err := n.backend(s.resource); err == nil {
			if seen, ok, err := backend.Observe(ctx, t.target, s.to); err == nil && ok {
				class = seen
			}
		}
		n.mu.Lock()
		if holder, known := n.ledger.Get(id); known {
			n.found(id, classes.Assignment{Resource: s.resource, Class: classOf(holder.Assignments, s.resource)}, class)
			n.notify()
		}
		n.mu.Unlock()
	}
}

// arrived notes that a holder is in the classes that it should be in.
func (n *Node) arrived(id string, steps []step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range steps {
		if _, astray := n.tracked[id].astray[s.resource]; astray {
			n.found(id, classes.Assignment{Resource: s.resource, Class: s.to}, s.to)
			n.notify()
		}
	}
}

// found notes the class of a resource that a holder is in, if it is not the one that it should have. The caller holds mu.
func (n *Node) found(id string, want classes.Assignment, class string) {
	t := n.tracked[id]
	astray := maps.Clone(t.astray) // readers may have the old one
	if class == want.Class {
		delete(astray, want.Resource)
	} else {
		if astray == nil {
			astray = map[string]string{}
		}
		astray[want.Resource] = class
	}
	t.astray = astray
	n.tracked[id] = t
}

// followDefaults gives a holder that asked for nothing the default classes of now.
func (n *Node) followDefaults(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.ledger.Get(id)
	if !known {
		return
	}
	after := before
	after.Assignments = classes.Overlay(before.Assignments, n.defaults(before))
	if slices.Equal(before.Assignments, after.Assignments) {
		return
	}
	n.ledger.Adopt(after)
	n.foundIn(id, before.Assignments)
	n.signalDrained(before.Assignments)
	n.notify()
}

// defaults are the assignments of a holder that asked for nothing, as they would be now. The caller holds mu.
func (n *Node) defaults(holder classes.Holding) []classes.Assignment {
	scope := classes.ContainerScope
	if holder.Owner().Container == "" {
		scope = classes.PodScope
	}
	var now []classes.Assignment
	for _, offer := range n.catalog.Offers() {
		i := slices.IndexFunc(holder.Assignments, func(a classes.Assignment) bool { return a.Resource == offer.Name })
		asked := i >= 0 && holder.Assignments[i].Source != classes.SourceDefault && holder.Assignments[i].Source != classes.SourceNone
		if offer.Scope == scope && !asked {
			now = append(now, offer.Default())
		}
	}
	for _, a := range holder.Assignments {
		if a.Source == classes.SourceDefault && n.isGone(a.Resource) {
			now = append(now, classes.Assignment{Resource: a.Resource}) // it never asked for what drains
		}
	}
	return now
}
