// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ErrRuntimeIgnored is for a container that its runtime has not put into its resctrl group.
var ErrRuntimeIgnored = errors.New("the container runtime ignored the resctrl group; " +
	"it must support Linux RDT through NRI: containerd 2.2.1 or later (NRI 0.11), with runc")

// ErrUnsettled is for a container whose threads multiply faster than they can be moved.
var ErrUnsettled = errors.New("new threads kept appearing outside the group")

// maxPasses bounds how often the threads of a container are gone through. Threads that are forked during a pass are in
// their parent's group, so that few passes are enough, unless a container does nothing but fork.
const maxPasses = 50

// Enforce implements classes.Backend. At creation it only verifies: the runtime has put the first process into its group.
// Later it moves all threads, until a pass over them finds none outside.
func (b *Backend) Enforce(ctx context.Context, target classes.Holder, from, to string) error {
	point := b.live.Load().point
	if point == "" {
		return fmt.Errorf("RDT class %q: no configuration is applied", to)
	}
	t := tree{b.host, point}
	if to != classes.SystemDefault && !t.exists(GroupOf(to)) {
		return fmt.Errorf("RDT class %q: %w; its resctrl group %s does not exist", to, ErrNotOffered, GroupOf(to))
	}
	if target.Starting {
		return t.verify(target, GroupOf(to))
	}
	m := &move{tree: t, list: func() ([]int, error) { return b.threadsOf(target) }, to: GroupOf(to), back: map[int]string{}}
	if err := m.run(ctx); err != nil {
		return m.undo(err, GroupOf(from))
	}
	return nil
}

// threadsOf lists a target's threads; it always has its first process.
func (b *Backend) threadsOf(target classes.Holder) ([]int, error) {
	if b.threads == nil {
		return nil, errors.New("threads of containers are unknown")
	}
	return b.threads.Threads(target)
}

func (t tree) verify(target classes.Holder, want string) error {
	if target.PID == 0 {
		return errors.New("the runtime has not said which process to look at; its RDT class cannot be verified")
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

// move is the change of group of one container.
type move struct {
	tree
	list func() ([]int, error)
	to   string
	// back is where threads were at first; what is born later is not in it.
	back map[int]string
	// begun says that something was moved.
	begun bool
	// passes are how many there may be; 0 is maxPasses.
	passes int
	// only are the groups to take threads from; nil is all.
	only func(group string) bool
}

func (m *move) run(ctx context.Context) error {
	if err := m.remember(); err != nil {
		return err
	}
	passes := cmp.Or(m.passes, maxPasses)
	for range passes {
		moved, err := m.pass(ctx)
		if err != nil || moved == 0 {
			return err
		}
	}
	return fmt.Errorf("%w %s after %d passes", ErrUnsettled, m.to, passes)
}

// remember notes where the threads are before any is moved.
func (m *move) remember() error {
	_, err := m.each(func(tid int, group string) (bool, error) {
		m.back[tid] = group
		return false, nil
	})
	return err
}

// pass moves what is outside the group, and says how many threads that were.
func (m *move) pass(ctx context.Context) (moved int, err error) {
	return m.each(func(tid int, group string) (bool, error) {
		if err := ctx.Err(); err != nil || group == m.to || m.only != nil && !m.only(group) {
			return false, err
		}
		if _, known := m.back[tid]; !known {
			m.back[tid] = group
		}
		err := m.moveTask(tid, m.to)
		m.begun = m.begun || err == nil
		return err == nil, err
	})
}

// each goes through the threads with their groups, and counts what do says it has done. Threads that end meanwhile are
// none of them.
func (m *move) each(do func(tid int, group string) (bool, error)) (done int, err error) {
	tids, err := m.list()
	if err != nil {
		return 0, fmt.Errorf("list threads: %w", err)
	}
	for _, tid := range tids {
		group, err := m.groupOfTask(tid)
		if err == nil {
			var did bool
			if did, err = do(tid, group); did {
				done++
			}
		}
		if err != nil && !errors.Is(err, errEnded) {
			return done, fmt.Errorf("thread %d: %w", tid, err)
		}
	}
	return done, nil
}

// undo takes all that was moved back to where it was, and what was born meanwhile to the group before. The context of
// the move does not count for it: a container must not stay in between.
func (m *move) undo(cause error, before string) error {
	if !m.begun {
		return cause
	}
	var problem error
	for range maxPasses {
		var moved int
		if moved, problem = m.passBack(before); moved == 0 {
			break
		}
	}
	if problem != nil {
		return &RollbackError{Err: cause, Rollback: problem}
	}
	return cause
}

func (m *move) passBack(before string) (moved int, err error) {
	var problems []error
	moved, err = m.each(func(tid int, group string) (bool, error) {
		origin, known := m.back[tid]
		if !known {
			origin = before
		}
		if group != m.to || origin == m.to {
			return false, nil
		}
		err := m.moveTask(tid, origin)
		if err != nil && !errors.Is(err, errEnded) {
			problems = append(problems, err)
		}
		return err == nil, nil
	})
	return moved, errors.Join(append(problems, err)...)
}

// Observe implements classes.Backend. A target in somebody else's group has no class of ours that could be named. While resctrl is
// not mounted, everything is in the system default.
func (b *Backend) Observe(_ context.Context, target classes.Holder, _ string) (class string, ok bool, err error) {
	point := b.live.Load().point
	if point == "" || target.PID == 0 {
		return "", false, nil
	}
	group, err := tree{b.host, point}.groupOfTask(target.PID)
	switch {
	case errors.Is(err, errEnded):
		return "", false, fmt.Errorf("process %d: %w", target.PID, classes.ErrEnded)
	case errors.Is(err, errUnmounted):
		return classes.SystemDefault, true, nil
	case err != nil:
		return "", false, fmt.Errorf("process %d: %w", target.PID, err)
	case group == rootGroup:
		return classes.SystemDefault, true, nil
	case isOurs(group):
		return classOf(group), true, nil
	}
	return "", false, nil
}
