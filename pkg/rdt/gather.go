// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// gatherPasses are few: what a container that does nothing but fork has made meanwhile is found the next time.
const gatherPasses = 3

// MoveThreads implements classes.ThreadMover. It reads the tasks of the class's group once for all targets, and touches only those that have
// threads elsewhere; in the system default, only threads in groups of ours, since others may have put theirs somewhere.
func (b *Backend) MoveThreads(ctx context.Context, class string, targets []classes.Holder) (strayed []string, err error) {
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
	outside, err := t.outside(class)
	if err != nil {
		return nil, errors.Join(append(problems, err)...)
	}
	for i, target := range targets {
		if !slices.ContainsFunc(threads[i], outside) {
			continue
		}
		m := &move{tree: t, list: func() ([]int, error) { return b.threadsOf(target) }, to: GroupOf(class), back: map[int]string{}, passes: gatherPasses}
		if class == classes.SystemDefault {
			m.only = isOurs
		}
		// What it has moved stays: the rest is found the next time.
		if err := m.run(ctx); err != nil {
			problems = append(problems, fmt.Errorf("container %s: %w", target.Container, err))
		}
		if m.begun {
			strayed = append(strayed, target.ID)
		}
	}
	return strayed, errors.Join(problems...)
}

// outside says whether a thread is not where those of a class are.
func (t tree) outside(class string) (func(tid int) bool, error) {
	groups, inside := []string{GroupOf(class)}, true
	if class == classes.SystemDefault {
		names, err := groupNames(t.host, t.point)
		if err != nil {
			return nil, fmt.Errorf("list resctrl groups: %w", err)
		}
		groups, inside = slices.DeleteFunc(names, func(name string) bool { return !isOurs(name) }), false
	}
	set := map[int]bool{}
	for _, group := range groups {
		tids, err := t.tasks(group)
		if err != nil && !gone(err) {
			return nil, fmt.Errorf("%s: %w", groupText(group), err)
		}
		for _, tid := range tids {
			set[tid] = true
		}
	}
	return func(tid int) bool { return set[tid] != inside }, nil
}
