// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Gather implements classes.Gatherer. It reads the tasks of the class's group once for all targets, and touches only those that have
// threads elsewhere.
func (b *Backend) Gather(ctx context.Context, class string, targets []classes.Target) (strayed []string, err error) {
	point := b.live.Load().point
	if point == "" {
		return nil, nil
	}
	t := tree{b.host, point}
	// Threads are listed before the group is: what is born into the group between the two is in its list.
	threads := make([][]int, len(targets))
	var problems []error
	for i, target := range targets {
		if threads[i], err = b.threadsOf(target); err != nil {
			problems = append(problems, fmt.Errorf("list threads: %w", err))
		}
	}
	inside, err := t.taskSet(GroupOf(class))
	if err != nil {
		return nil, errors.Join(append(problems, err)...)
	}
	for i, target := range targets {
		moved, err := b.gather(ctx, t, GroupOf(class), target, outside(threads[i], inside))
		if moved {
			strayed = append(strayed, target.ID)
		}
		problems = append(problems, err)
	}
	return strayed, errors.Join(problems...)
}

func (t tree) taskSet(group string) (map[int]bool, error) {
	tids, err := t.tasks(group)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", groupText(group), err)
	}
	set := make(map[int]bool, len(tids))
	for _, tid := range tids {
		set[tid] = true
	}
	return set, nil
}

func outside(threads []int, inside map[int]bool) (out []int) {
	for _, tid := range threads {
		if !inside[tid] {
			out = append(out, tid)
		}
	}
	return out
}

// gather moves what is outside. What those threads fork meanwhile is looked for too; it stays where it is on an error, and is
// found the next time.
func (b *Backend) gather(ctx context.Context, t tree, group string, target classes.Target, out []int) (moved bool, err error) {
	if len(out) == 0 {
		return false, nil
	}
	m := &move{tree: t, list: func() ([]int, error) { return b.threadsOf(target) }, to: group, back: map[int]string{}}
	if err := m.run(ctx); err != nil {
		return m.begun, fmt.Errorf("container %s: %w", target.Container, err)
	}
	return m.begun, nil
}
