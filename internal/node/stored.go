// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// noteStored marks a container of which the runtime has stored values of a device that is gone, or of another class than it has: it would fail
// to set them again, as at a resize, or set them. The caller holds mu.
func (n *Node) noteStored(id string, unified map[string]string) {
	holder, known := n.ledger.Get(id)
	if !known || len(unified) == 0 {
		return
	}
	for name, b := range n.backends {
		storer, ok := b.Backend.(classes.StoredValueChecker)
		if !ok || b.config.Scope == classes.PodScope {
			continue
		}
		class, created := classOf(holder.Assignments, name), classOf(n.tracked[id].created, name)
		ours := class != classes.SystemDefault || created != classes.SystemDefault
		if ours && storer.IsStale(class, unified) {
			n.stale[id] = true
		}
	}
}

// noteGone marks all containers of which the runtime may have stored values of a resource. The caller holds mu.
func (n *Node) noteGone(resource string) {
	for id, t := range n.tracked {
		holder, _ := n.ledger.Get(id)
		if classOf(t.created, resource) != classes.SystemDefault || classOf(holder.Assignments, resource) != classes.SystemDefault {
			n.stale[id] = true
		}
	}
}

// restore takes values that are not its class's out of what the runtime has stored of a container that is marked.
func (n *Node) restore(ctx context.Context, id string) {
	n.mu.Lock()
	marked := n.stale[id]
	n.mu.Unlock()
	if !marked {
		return
	}
	holder, t, known := n.live(id)
	unified, err := n.unified(storedSteps(holder, t))
	if known && err == nil {
		err = n.updateRuntime(ctx, t.target, unified)
	}
	switch {
	case err == nil:
		n.mu.Lock()
		delete(n.stale, id)
		n.mu.Unlock()
	case n.away == nil: // else it is the runtime that does not answer
		n.log.Debug("the runtime still has values that are not those of the class; it is tried again", "container", describe(holder), "error", err)
	}
}

// storedSteps set what a holder has once more: into its class from the class itself, which clears what that had before.
func storedSteps(holder classes.Holding, t tracked) (steps []step) {
	for _, a := range holder.Assignments {
		from := a.Class
		if from == classes.SystemDefault {
			from = classOf(t.created, a.Resource)
		}
		if from != classes.SystemDefault && holder.Owner().Container != "" {
			steps = append(steps, step{resource: a.Resource, from: from, to: a.Class})
		}
	}
	return steps
}

// noteAway ends what is asked of the runtime until the next round of changes: one that does not answer would take its time for each of
// all containers.
func (n *Node) noteAway(err error) {
	if errors.Is(err, ErrNotConnected) || errors.Is(err, context.DeadlineExceeded) {
		n.away = err
	}
}
