// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Reconcile brings what runs along with the live configuration: whoever has a default gets the default of now, and where
// the kernel shows anything else than the class that is reported, the class is enforced again. It is to be called after
// Configure, outside of hooks. It returns how many containers and pods it had to mend.
func (n *Node) Reconcile(ctx context.Context) (mended int) {
	n.changing.Lock()
	defer n.changing.Unlock()
	for _, id := range n.holderIDs() {
		if ctx.Err() != nil {
			return mended
		}
		holder, t, steps := n.astray(ctx, id)
		if len(steps) == 0 {
			continue
		}
		if err := n.take(ctx, t.target, steps); err != nil {
			n.log.Warn("a running container could not be brought along with the class files", "container", describe(holder), "error", err)
			n.giveUp(holder, steps)
			continue
		}
		mended++
	}
	return mended
}

func (n *Node) holderIDs() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []string
	for _, h := range n.ledger.Holders() {
		if n.tracked[h.ID].started {
			ids = append(ids, h.ID)
		}
	}
	return ids
}

// astray says what has to be done to a holder so that it is in the classes that it should be in, which it is reported
// to be in from here on.
func (n *Node) astray(ctx context.Context, id string) (classes.Holder, tracked, []step) {
	holder, t, known := n.followDefaults(id)
	if !known {
		return holder, t, nil
	}
	now, t, known := n.live(id)
	if !known {
		return holder, t, nil
	}
	steps := stepsBetween(holder.Assignments, now.Assignments)
	for _, a := range now.Assignments {
		changing := slices.ContainsFunc(steps, func(s step) bool { return s.resource == a.Resource })
		if !changing && a.Class != classes.SystemDefault && !n.isIn(ctx, t.target, a) {
			steps = append(steps, step{resource: a.Resource, from: a.Class, to: a.Class})
		}
	}
	return now, t, steps
}

// followDefaults gives a holder the default classes of now, and returns it as it was before.
func (n *Node) followDefaults(id string) (classes.Holder, tracked, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	holder, known := n.ledger.Get(id)
	if !known {
		return holder, tracked{}, false
	}
	changed := holder
	changed.Assignments = overlay(holder.Assignments, n.defaults(holder))
	if len(stepsBetween(holder.Assignments, changed.Assignments)) > 0 {
		n.ledger.Adopt(changed)
		n.notify()
	}
	return holder, n.tracked[id], true
}

// defaults are the assignments of a holder that asked for nothing, as they would be now. The caller holds mu.
func (n *Node) defaults(holder classes.Holder) []classes.Assignment {
	scope := classes.ContainerScope
	if holder.Owner.Container == "" {
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
	return now
}

// isIn says whether the kernel shows a target in a class. What the kernel cannot tell counts as not.
func (n *Node) isIn(ctx context.Context, target classes.Target, a classes.Assignment) bool {
	backend, err := n.backend(a.Resource)
	if err != nil {
		return true // nothing is there to enforce it with
	}
	class, ok, err := backend.Observe(ctx, target)
	return err == nil && ok && class == a.Class
}
