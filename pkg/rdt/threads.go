// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ErrUnsettled is the error for a container that creates threads faster than they can be moved.
var ErrUnsettled = errors.New("new threads kept appearing outside the group")

const (
	// maxPasses is the maximum number of passes over the threads of a container. Few passes are enough unless a
	// container keeps forking, because a new thread starts in the group of its parent.
	maxPasses = 50
	// repairPasses is the maximum number of passes in one call of MoveThreads. The next call moves the remaining threads.
	repairPasses = 3
)

// MoveThreads implements classes.ThreadMover. If the class is the system default, it moves only the threads that are in
// managed groups.
func (b *Backend) MoveThreads(ctx context.Context, class string, targets []classes.Holder) (moved []string, err error) {
	return b.moveThreads(ctx, class, targets, nil)
}

// MoveNewThreads implements classes.ThreadMover.
func (b *Backend) MoveNewThreads(ctx context.Context, class string, targets []classes.Holder) (moved []string, err error) {
	return b.moveThreads(ctx, class, targets, b.inside.of(class))
}

// moveThreads moves the threads of targets into the class. `inside` has threads that it does not check, sorted, by the
// target's ID.
func (b *Backend) moveThreads(ctx context.Context, class string, targets []classes.Holder, inside map[string][]int) (moved []string, err error) {
	m := b.live.Load().machine
	if m == nil {
		return nil, nil
	}

	// The threads are listed before their groups are read. In the opposite order, a thread that joins the group between
	// the two would count as a thread outside the group.
	moves := make([]*move, len(targets))
	threads, unchecked := make(map[string][]int, len(targets)), make([][]int, len(targets))
	checks := 0
	var problems []error
	for i, target := range targets {
		moves[i] = b.newMove(m.Tree, target, class)
		tids, err := moves[i].list()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		threads[target.ID], unchecked[i] = tids, without(tids, inside[target.ID])
		checks += len(unchecked[i])
	}
	outside, err := outside(m.Tree, class, checks)
	if err != nil {
		return nil, errors.Join(append(problems, err)...)
	}

	for i, target := range targets {
		if !slices.ContainsFunc(unchecked[i], outside) {
			continue
		}

		if class == classes.SystemDefault {
			moves[i].movable = groups.IsManaged
		}
		if err := moves[i].run(ctx, repairPasses); err != nil { // the moved threads stay; the next call moves the other threads
			problems = append(problems, fmt.Errorf("container %s: %w", target.Container, err))
			delete(threads, target.ID)
		}
		if moves[i].begun {
			moved = append(moved, target.ID)
		}
	}
	b.inside.set(class, threads)
	return moved, errors.Join(problems...)
}

// without returns the threads that are not in `known`. Both are sorted.
func without(tids, known []int) []int {
	if len(known) == 0 {
		return tids
	}
	return slices.DeleteFunc(slices.Clone(tids), func(tid int) bool {
		_, found := slices.BinarySearch(known, tid)
		return found
	})
}

// inside has the threads of containers that the last call found in their class, sorted, by class and container ID.
type inside struct {
	mu      sync.Mutex
	threads map[string]map[string][]int
}

func (i *inside) of(class string) map[string][]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.threads[class]
}

func (i *inside) set(class string, threads map[string][]int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.threads == nil {
		i.threads = map[string]map[string][]int{}
	}
	i.threads[class] = threads
}

// forget removes the threads of classes that no container has any more. It calls `inUse` under its lock.
func (i *inside) forget(inUse func(class string) bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.threads, func(class string, _ map[string][]int) bool { return !inUse(class) })
}

// fewThreads is the number of threads whose groups are read thread by thread. To read the tasks of a group, the kernel
// visits each thread of the node.
const fewThreads = 16

// outside returns a function that reports whether a thread is not in the group of a class. For the system default, the
// function reports whether the thread is in a managed group. `checks` is the number of threads that it is called for.
func outside(t resctrl.Tree, class string, checks int) (func(tid int) bool, error) {
	if checks > fewThreads {
		return outsideOf(t, class)
	}
	return func(tid int) bool {
		group, err := t.GroupOfTask(tid)
		switch {
		case err != nil:
			return !errors.Is(err, resctrl.ErrEnded) // the move reports the error
		case class == classes.SystemDefault:
			return groups.IsManaged(group)
		default:
			return group != groups.Of(class)
		}
	}, nil
}

// outsideOf is `outside` for many threads.
func outsideOf(t resctrl.Tree, class string) (func(tid int) bool, error) {
	names, inside := []string{groups.Of(class)}, true
	if class == classes.SystemDefault {
		controls, err := t.Groups()
		if err != nil {
			return nil, err
		}
		names, inside = slices.DeleteFunc(controls, func(name string) bool { return !groups.IsManaged(name) }), false
	}

	set := map[int]bool{}
	for _, group := range names {
		tids, err := t.Tasks(group)
		if err != nil && !resctrl.NotExist(err) {
			return nil, fmt.Errorf("%s: %w", resctrl.Describe(group), err)
		}
		for _, tid := range tids {
			set[tid] = true
		}
	}
	return func(tid int) bool { return set[tid] != inside }, nil
}

type move struct {
	resctrl.Tree
	list func() ([]int, error)
	to   string
	// movable reports whether the move includes the threads of a group.
	movable func(group string) bool
	// origins maps each thread to the group in which it was before the move. It lacks threads that were created in the
	// new group after the move began.
	origins map[int]string
	// begun reports whether a thread was moved.
	begun bool
}

func (b *Backend) newMove(t resctrl.Tree, target classes.Holder, class string) *move {
	list := func() ([]int, error) { return b.threadsOf(target) }
	return &move{Tree: t, list: list, to: groups.Of(class), movable: func(string) bool { return true }, origins: map[int]string{}}
}

func (b *Backend) threadsOf(target classes.Holder) ([]int, error) {
	if b.threads == nil {
		return nil, errors.New("the threads of containers are unknown")
	}
	tids, err := b.threads.Threads(target)
	if err != nil {
		return nil, fmt.Errorf("list threads: %w", err)
	}
	return tids, nil
}

// run records the groups of all threads. It then repeats passes until a pass finds no thread to move.
func (m *move) run(ctx context.Context, passes int) error {
	err := m.each(func(tid int, group string) error {
		m.origins[tid] = group
		return nil
	})
	if err != nil {
		return err
	}

	for range passes {
		moved, err := m.pass(ctx)
		if err != nil || moved == 0 {
			return err
		}
	}
	return fmt.Errorf("%w %s after %d passes", ErrUnsettled, m.to, passes)
}

// done reports whether all threads are in the group of the class. For the system default, it reports whether no
// thread is in a managed group.
func (m *move) done(class string) bool {
	tids, err := m.list()
	if err != nil {
		return false
	}
	outside, err := outside(m.Tree, class, len(tids))
	return err == nil && !slices.ContainsFunc(tids, outside)
}

// pass moves the movable threads that are outside the group m.to. It returns the number of moved threads.
func (m *move) pass(ctx context.Context) (moved int, err error) {
	err = m.each(func(tid int, group string) error {
		if err := ctx.Err(); err != nil || group == m.to || !m.movable(group) {
			return err
		}

		if _, known := m.origins[tid]; !known {
			m.origins[tid] = group
		}
		err := m.MoveTask(tid, m.to)
		if err == nil {
			moved++
		}
		return err
	})
	m.begun = m.begun || moved > 0
	return moved, err
}

// each calls do(tid, group) for every thread, with the thread's group. It skips threads that end meanwhile.
func (m *move) each(do func(tid int, group string) error) error {
	tids, err := m.list()
	if err != nil {
		return err
	}

	for _, tid := range tids {
		group, err := m.GroupOfTask(tid)
		if err == nil {
			err = do(tid, group)
		}
		if err != nil && !errors.Is(err, resctrl.ErrEnded) {
			return fmt.Errorf("thread %d: %w", tid, err)
		}
	}
	return nil
}

// undo moves each thread back to its group in m.origins. The parameter `before` is the group for threads that were
// created during the move. undo ignores the context of the move, so that no container stays divided between two
// groups.
func (m *move) undo(cause error, before string) error {
	if !m.begun {
		return cause
	}

	for range maxPasses {
		moved, err := m.passBack(before)
		switch {
		case moved > 0:
		case err != nil:
			return rollbackFailed(cause, err)
		default:
			return cause
		}
	}
	return rollbackFailed(cause, fmt.Errorf("threads were still in the group %s after %d passes", m.to, maxPasses))
}

func (m *move) passBack(before string) (moved int, err error) {
	var problems []error
	err = m.each(func(tid int, group string) error {
		origin, known := m.origins[tid]
		if !known {
			origin = before
		}
		if group != m.to || origin == m.to {
			return nil
		}

		err := m.MoveTask(tid, origin)
		if err == nil {
			moved++
		} else if !errors.Is(err, resctrl.ErrEnded) {
			problems = append(problems, err)
		}
		return nil
	})
	return moved, errors.Join(append(problems, err)...)
}
