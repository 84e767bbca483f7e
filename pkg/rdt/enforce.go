// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Enforce implements classes.Backend. It moves all threads of the target to the group, and moves them back after an
// error. One system call moves all threads in the target's monitoring group. Enforce moves other threads, such as
// those of "kubectl exec", one by one. The runtime usually starts the first process of a container in the right
// group. If it does not, e.g. because the runtime's NRI does not support RDT, Enforce moves the process before its
// first instruction.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	m := b.live.Load().machine
	if m == nil {
		return fmt.Errorf("RDT class %q: no configuration is applied", to)
	}
	if to != classes.SystemDefault && !m.Exists(groups.Of(to)) {
		return fmt.Errorf("RDT class %q: %w; its resctrl group %s does not exist", to, ErrNotOffered, groups.Of(to))
	}

	if group, err := m.GroupOfTask(target.PID); target.Starting && err == nil && group == groups.Of(to) {
		return nil
	}
	move := b.newMove(m.Tree, target, to)
	followed := b.Follow(target.ID, groups.Of(to))
	var err error
	if !followed || !move.done(to) {
		err = move.run(ctx, maxPasses)
	}
	if err == nil && target.Starting {
		err = move.hasFirst(target)
	}
	if err != nil && followed {
		b.Follow(target.ID, groups.Of(from))
	}
	if err != nil {
		return move.undo(err, groups.Of(from))
	}

	if !target.Starting {
		b.Monitor(ctx, target, to)
	}
	if move.begun && target.Starting {
		b.log.Info("moved a container to its resctrl group, because the container runtime did not", "class", to, "container", target.String())
	}
	return nil
}

// hasFirst returns an error if the move does not include the first process of a container. If `target` has no PID, any
// thread suffices.
func (m *move) hasFirst(target classes.Holder) error {
	if _, has := m.origins[target.PID]; has || target.PID == 0 && len(m.origins) > 0 {
		return nil
	}
	return fmt.Errorf("move to %s: the first process of the container is not in the container's cgroup", resctrl.Describe(m.to))
}

// Observe implements classes.Backend. A group that this program does not manage is foreign. While resctrl is not mounted,
// Observe returns the system default for every target.
func (b *Backend) Observe(_ context.Context, target classes.Holder, _ string) (classes.Observation, error) {
	m := b.live.Load().machine
	if m == nil || target.PID == 0 {
		return classes.Observation{}, nil
	}

	group, err := m.GroupOfTask(target.PID)
	switch {
	case errors.Is(err, resctrl.ErrEnded):
		return classes.Observation{}, fmt.Errorf("process %d: %w", target.PID, classes.ErrEnded)
	case errors.Is(err, resctrl.ErrUnmounted):
		return classes.Observation{Class: classes.SystemDefault, Known: true}, nil
	case err != nil:
		return classes.Observation{}, fmt.Errorf("process %d: %w", target.PID, err)
	case group == resctrl.Root:
		return classes.Observation{Class: classes.SystemDefault, Known: true}, nil
	case groups.IsManaged(group):
		return classes.Observation{Class: groups.ClassOf(group), Known: true}, nil
	}
	return classes.Observation{Foreign: resctrl.Describe(group)}, nil
}
