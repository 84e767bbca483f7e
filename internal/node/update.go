// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Errors of Update that callers decide on.
var (
	ErrNotFound     = errors.New("not found")
	ErrNotRunning   = errors.New("not running yet")
	ErrImmutable    = errors.New("the class of what runs cannot be changed")
	ErrNotConnected = errors.New("not connected to the container runtime")
)

// step takes one resource of a container or pod from one class to another. From a class to itself means that it is
// enforced again.
type step struct{ resource, from, to string }

func (s step) failed(err error) error { return fmt.Errorf("class %q of %s: %w", s.to, s.resource, err) }

func classOf(assignments []classes.Assignment, resource string) string {
	for _, a := range assignments {
		if a.Resource == resource {
			return a.Class
		}
	}
	return classes.SystemDefault
}

// Update changes classes of a running container, or with an empty container name of a pod: all of them or none
// (KEP-3008, "UpdateContainerResourcesRequest"). requests are classes by resource; short names may be used.
func (n *Node) Update(ctx context.Context, owner classes.Owner, requests map[string]string) error {
	if err := n.changing.take(ctx); err != nil {
		return fmt.Errorf("%s: another change has not ended yet: %w", owner, err)
	}
	defer n.changing.leave()
	n.away = nil
	before, t, changes, err := n.admitChange(owner, requests)
	if err != nil {
		return err
	}
	steps := stepsTo(changes, before, t)
	err = n.remember(before.ID)
	if err == nil {
		err = n.take(ctx, t.target, steps)
	}
	if err == nil {
		n.confirm(before.ID, changes)
		n.arrived(before.ID, steps)
		for _, s := range steps {
			n.log.Info("class changed", "container", describe(before), "resource", s.resource, "from", s.from, "to", s.to)
		}
		return nil
	}
	if _, _, lives := n.live(before.ID); !lives {
		return fmt.Errorf("%s: %w any more: %w", describe(before), ErrNotFound, err)
	}
	n.revert(before)
	n.look(ctx, before.ID, steps)
	return errors.Join(fmt.Errorf("%s: %w", describe(before), err), n.remember(before.ID))
}

// confirm sees to it that a holder has what it was changed to. A synchronization in between does not know of it yet.
func (n *Node) confirm(id string, changes []classes.Assignment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if holder, known := n.ledger.Get(id); known {
		holder.Assignments = classes.Overlay(holder.Assignments, changes)
		n.ledger.Adopt(holder)
		n.notify()
	}
}

// stepsTo are those that a change needs from where a holder is.
func stepsTo(changes []classes.Assignment, before classes.Holding, t tracked) (steps []step) {
	for _, a := range changes {
		if from := t.classOf(before, a.Resource); from != a.Class {
			steps = append(steps, step{resource: a.Resource, from: from, to: a.Class})
		}
	}
	return steps
}

// admitChange checks a change and takes the slots for it. It returns the holder as it was before.
func (n *Node) admitChange(
	owner classes.Owner, requests map[string]string,
) (before classes.Holding, t tracked, changes []classes.Assignment, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, t, err = n.holderOf(owner)
	if err != nil {
		return before, t, nil, err
	}
	changes, err = n.requested(before, requests)
	if err != nil {
		return before, t, nil, fmt.Errorf("%s: %w", describe(before), err)
	}
	if _, err := n.ledger.Change(before.ID, changes, n.catalog); err != nil {
		return before, t, nil, n.count(err)
	}
	n.signalDrained(before.Assignments)
	n.notify()
	return before, t, changes, nil
}

// holderOf returns the newest holder of an owner, which must be running. The caller holds mu.
func (n *Node) holderOf(owner classes.Owner) (classes.Holding, tracked, error) {
	newest, t := n.newest(owner)
	switch {
	case t.number == 0:
		return newest, t, fmt.Errorf("%s: %w on this node", owner, ErrNotFound)
	case !t.started:
		return newest, t, fmt.Errorf("%s: %w", describe(newest), ErrNotRunning)
	}
	return newest, t, nil
}

// newest returns the newest holder of an owner; the number is 0 when there is none. The caller holds mu.
func (n *Node) newest(owner classes.Owner) (newest classes.Holding, t tracked) {
	for _, h := range n.ledger.Holdings() {
		if h.Owner() == owner && n.tracked[h.ID].number > t.number {
			newest, t = h, n.tracked[h.ID]
		}
	}
	return newest, t
}

// requested returns the assignments that a change asks for, if it may be made. The caller holds mu.
func (n *Node) requested(holder classes.Holding, requests map[string]string) ([]classes.Assignment, error) {
	scope := classes.ContainerScope
	if holder.Owner().Container == "" {
		scope = classes.PodScope
	}
	var changes []classes.Assignment
	for name, class := range requests {
		offer, ok := n.catalog.Lookup(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: %q; this node has %s", classes.ErrUnknownResource, name, n.offeredNames())
		case offer.Scope != scope:
			return nil, fmt.Errorf("%s is assigned to a %s, not to a %s: %w", offer.Name, offer.Scope, scope, classes.ErrBadRequest)
		case !offer.Mutable:
			return nil, fmt.Errorf("%s: %w", offer.Name, ErrImmutable)
		case class != classes.SystemDefault && offer.Unavailable != nil:
			return nil, fmt.Errorf("%s: %w: %w", offer.Name, classes.ErrUnavailable, offer.Unavailable)
		}
		changes = append(changes, classes.Assignment{Resource: offer.Name, Class: class, Source: classes.SourceUpdate})
	}
	return changes, nil
}

func (n *Node) offeredNames() string {
	var names []string
	for _, offer := range n.catalog.Offers() {
		names = append(names, offer.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// take makes the steps: first through the runtime, which then knows of them, then by the backends, which also verify.
// On error what was done is undone, as far as possible.
func (n *Node) take(ctx context.Context, target classes.Holder, steps []step) error {
	unified, err := n.unified(steps)
	if err != nil {
		return err
	}
	if n.away != nil && len(unified) > 0 {
		return n.away
	}
	err = n.updateRuntime(ctx, target, unified)
	if errors.Is(err, ErrNotConnected) {
		return err
	}
	for _, s := range steps {
		if err == nil {
			err = n.enforce(ctx, target, s)
		}
	}
	if err != nil {
		return errors.Join(err, n.undo(ctx, target, steps))
	}
	return nil
}

// undo takes all steps back, also those that were not made: that does nothing. It goes on after an error.
func (n *Node) undo(ctx context.Context, target classes.Holder, steps []step) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	var all classes.Adjustment
	var back []step
	for _, s := range steps {
		if s.from == s.to {
			continue
		}
		s.from, s.to = s.to, s.from
		one, err := n.adjustment(s)
		errs = append(errs, err)
		all, back = all.Merge(one), append(back, s)
	}
	if len(back) == 0 {
		return nil
	}
	n.away = nil // what was asked may have been done all the same
	errs = append(errs, n.updateRuntime(ctx, target, all.Unified))
	for _, s := range back {
		errs = append(errs, n.enforce(ctx, target, s))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

func (n *Node) unified(steps []step) (map[string]string, error) {
	var all classes.Adjustment
	for _, s := range steps {
		one, err := n.adjustment(s)
		if err != nil {
			return nil, err
		}
		all = all.Merge(one)
	}
	return all.Unified, nil
}

func (n *Node) adjustment(s step) (classes.Adjustment, error) {
	backend, err := n.backend(s.resource)
	if err != nil {
		return classes.Adjustment{}, err
	}
	one, err := backend.Adjust(s.from, s.to)
	if err != nil {
		return classes.Adjustment{}, s.failed(err)
	}
	return one, nil
}

func (n *Node) updateRuntime(ctx context.Context, target classes.Holder, unified map[string]string) error {
	if len(unified) == 0 {
		return nil
	}
	if n.away != nil {
		return n.away
	}
	n.mu.Lock()
	runtime := n.runtime
	n.mu.Unlock()
	err := ErrNotConnected
	if runtime != nil {
		err = runtime.SetUnified(ctx, target.ID, unified)
	}
	n.noteAway(err)
	return err
}

// revert gives a holder back what it had, if it is still there.
func (n *Node) revert(holder classes.Holding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.ledger.Get(holder.ID); known {
		n.ledger.Adopt(holder)
		n.notify()
	}
}

// remember writes down the classes of a holder that were changed after its creation, so that they survive a restart.
func (n *Node) remember(id string) error {
	holder, _, known := n.live(id)
	if !known {
		return nil
	}
	return n.changes.Set(id, updated(holder.Assignments))
}

func (n *Node) live(id string) (classes.Holding, tracked, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	holder, known := n.ledger.Get(id)
	return holder, n.tracked[id], known
}
