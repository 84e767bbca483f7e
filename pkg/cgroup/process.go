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

// groupOf returns the cgroup of a process in a hierarchy, as a path below the root of the hierarchy.
func (t *Tree) groupOf(h hierarchy, pid int) (string, error) {
	data, err := t.fs.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", fmt.Errorf("%w of process %d: %w", ErrNoCgroup, pid, err)
	}
	return parseProcCgroup(data, h)
}

func parseProcCgroup(data []byte, h hierarchy) (string, error) {
	byController, group, err := cgroups.ParseCgroupFromReaderUnified(bytes.NewReader(data))
	if err != nil {
		return "", err
	}

	if h.version == 1 {
		group = ""
		for _, controller := range h.controllers {
			group = max(group, byController[controller])
		}
	}
	if !strings.HasPrefix(group, "/") {
		return "", fmt.Errorf("%w in the hierarchy at %s", ErrNoCgroup, h.point)
	}
	return cleanPath(group)
}

// Threads returns the sorted IDs of all threads in the target's cgroup and below it, in the PID namespace of the host's
// /proc. It skips a cgroup that is removed meanwhile. On machines with cgroup v1 and v2, it uses the first hierarchy
// that has threads of the target.
func (t *Tree) Threads(target classes.Holder) ([]int, error) {
	if len(t.hierarchies) == 0 {
		return nil, errors.New("list threads: no cgroup hierarchy is mounted; mount cgroup2 at " + defaultMount)
	}

	var failed []error
	for _, h := range t.hierarchies {
		threads, err := t.threadsIn(h, target)
		if len(threads) > 0 || err != nil && !errors.Is(err, ErrNoCgroup) {
			return threads, err
		}
		failed = append(failed, err)
	}
	if slices.Contains(failed, nil) {
		return nil, nil
	}
	return nil, fmt.Errorf("list threads: %w", errors.Join(failed...))
}

func (t *Tree) threadsIn(h hierarchy, target classes.Holder) ([]int, error) {
	dir, err := t.dir(h, target)
	if err != nil {
		return nil, err
	}
	file := "cgroup.threads"
	if h.version == 1 {
		file = "tasks"
	}

	threads, err := t.idsBelow(dir, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoCgroup, err)
	}
	slices.Sort(threads)
	return slices.Compact(threads), err
}

// idsBelow reads a file with IDs of processes or threads in a cgroup and all cgroups below it.
func (t *Tree) idsBelow(dir, file string) ([]int, error) {
	data, err := t.fs.ReadFile(dir + "/" + file)
	if err != nil {
		return nil, fmt.Errorf("read threads: %w", err)
	}
	ids, err := parseIDs(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Join(dir, file), err)
	}
	names, err := t.children(dir)
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}

	for _, name := range names {
		below, err := t.idsBelow(path.Join(dir, name), file)
		if err != nil && !isGone(err) {
			return nil, err
		}
		ids = append(ids, below...)
	}
	return ids, nil
}

// isGone reports whether err means that a directory is not a cgroup: it was removed, or it is a file.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENODEV)
}

// parseIDs reads the file cgroup.threads, cgroup.procs or tasks. It skips the ID 0, which stands for a process outside
// the reader's PID namespace.
func parseIDs(data []byte) ([]int, error) {
	var ids []int
	for line := range strings.FieldsSeq(string(data)) {
		id, err := strconv.Atoi(line)
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%q is not the ID of a process or thread", line)
		}
		if id > 0 {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// StatField returns a field of /proc/PID/stat by its number in proc_pid_stat(5). The number must be at least 3. If
// there is no such field, the result is empty. StatField counts from the last ")", because field 2, the process name,
// may have any characters.
func StatField(stat []byte, number int) string {
	const first = 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if number-first >= len(fields) {
		return ""
	}
	return string(fields[number-first])
}
