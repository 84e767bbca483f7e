// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ErrRuntimeIgnored is the error for a container that the container runtime did not put into the requested resctrl group.
var ErrRuntimeIgnored = errors.New("the container runtime ignored the resctrl group; " +
	"use a runtime that supports Linux RDT through NRI: containerd 2.2.1 or later (NRI 0.11), with runc")

// Enforce implements classes.Backend. While a container is created, Enforce verifies that the runtime has put the first
// process into the group. For a running container, it moves all threads, and moves them back if that fails.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	m := b.live.Load().machine
	if m == nil {
		return fmt.Errorf("RDT class %q: no configuration is applied", to)
	}
	if to != classes.SystemDefault && !m.exists(GroupOf(to)) {
		return fmt.Errorf("RDT class %q: %w; its resctrl group %s does not exist", to, ErrNotOffered, GroupOf(to))
	}

	if target.Starting {
		return m.verify(target, GroupOf(to))
	}
	move := b.newMove(m.tree, target, to)
	if err := move.run(ctx, maxPasses); err != nil {
		return move.undo(err, GroupOf(from))
	}
	return nil
}

func (t tree) verify(target classes.Holder, want string) error {
	if target.PID == 0 {
		return errors.New("the runtime reported no process ID, so the RDT class cannot be verified")
	}

	group, err := t.groupOfTask(target.PID)
	switch {
	case err != nil:
		return fmt.Errorf("process %d: %w", target.PID, err)
	case group != want:
		return fmt.Errorf("process %d is in %s instead of %s: %w", target.PID, groupText(group), groupText(want), ErrRuntimeIgnored)
	}
	return nil
}

// Observe implements classes.Backend. It returns no class for a target in a group that this program does not manage.
// While resctrl is not mounted, it returns the system default for every target.
func (b *Backend) Observe(_ context.Context, target classes.Holder, _ string) (class string, ok bool, err error) {
	m := b.live.Load().machine
	if m == nil || target.PID == 0 {
		return "", false, nil
	}

	group, err := m.groupOfTask(target.PID)
	switch {
	case errors.Is(err, errEnded):
		return "", false, fmt.Errorf("process %d: %w", target.PID, classes.ErrEnded)
	case errors.Is(err, errUnmounted):
		return classes.SystemDefault, true, nil
	case err != nil:
		return "", false, fmt.Errorf("process %d: %w", target.PID, err)
	case group == rootGroup:
		return classes.SystemDefault, true, nil
	case isManaged(group):
		return classOf(group), true, nil
	}
	return "", false, nil
}
