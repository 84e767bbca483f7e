// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/cgroups/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// groupOf returns the cgroup of a process in a hierarchy, as a path below the hierarchy's root.
func (t *Tree) groupOf(h hierarchy, pid int) (string, error) {
	file := fmt.Sprintf("/proc/%d/cgroup", pid)
	data, err := t.fs.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%w of process %d: %w", ErrNoCgroup, pid, err)
	}
	group, err := parseProcCgroup(data, h)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return group, nil
}

// parseProcCgroup reads /proc/<pid>/cgroup (cgroups(7)).
func parseProcCgroup(data []byte, h hierarchy) (string, error) {
	legacy, unified, err := cgroups.ParseCgroupFromReaderUnified(bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	group := unified
	if h.version == 1 {
		group = ""
		for _, controller := range h.controllers {
			group = max(group, legacy[controller])
		}
	}
	if !strings.HasPrefix(group, "/") {
		return "", fmt.Errorf("%w in the hierarchy at %s", ErrNoCgroup, h.point)
	}
	return cleanPath(group)
}

// Threads returns the IDs of all threads that are in the target's cgroup or below it right now, in the PID namespace of the
// host's /proc, sorted. A cgroup that vanishes meanwhile has none. On hybrid machines any hierarchy will do in which the
// runtime has put them.
func (t *Tree) Threads(target classes.Holder) ([]int, error) {
	var failed []error
	found := false
	for _, h := range t.hierarchies {
		threads, err := t.threadsIn(h, target)
		if errors.Is(err, ErrNoCgroup) {
			failed = append(failed, err)
			continue
		}
		if err != nil || len(threads) > 0 {
			return threads, err
		}
		found = true
	}
	if found {
		return nil, nil
	}
	return nil, fmt.Errorf("list threads: %w", errors.Join(append(failed, noHierarchy(t.hierarchies))...))
}

func (t *Tree) threadsIn(h hierarchy, target classes.Holder) ([]int, error) {
	dir, err := t.dir(h, target)
	if err != nil {
		return nil, err
	}
	threads, err := t.threadsBelow(dir, h.threadsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoCgroup, err)
	}
	slices.Sort(threads)
	return slices.Compact(threads), err
}

func noHierarchy(hierarchies []hierarchy) error {
	if len(hierarchies) == 0 {
		return errors.New("no cgroup hierarchy is mounted; mount cgroup2 at " + usualPoint)
	}
	return nil
}

func (h hierarchy) threadsFile() string {
	if h.version == 1 {
		return "tasks"
	}
	return "cgroup.threads"
}

func (t *Tree) threadsBelow(dir, file string) ([]int, error) {
	data, err := t.fs.ReadFile(path.Join(dir, file))
	if err != nil {
		return nil, fmt.Errorf("read threads: %w", err)
	}
	threads, err := parseIDs(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(dir, file), err)
	}
	names, err := t.below(dir)
	if err != nil {
		return nil, fmt.Errorf("read cgroup: %w", err)
	}
	for _, name := range names {
		below, err := t.threadsBelow(path.Join(dir, name), file)
		if err != nil && !vanished(err) {
			return nil, err
		}
		threads = append(threads, below...)
	}
	return threads, nil
}

// vanished: the name was no directory, or the cgroup is gone.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENODEV)
}

// parseIDs reads cgroup.threads, cgroup.procs or tasks. A 0, a process outside the reader's PID namespace, is left out.
func parseIDs(data []byte) ([]int, error) {
	var ids []int
	for _, line := range strings.Fields(string(data)) {
		id, err := strconv.Atoi(line)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%q is not a process", line)
		}
		if id > 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
