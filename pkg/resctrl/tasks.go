// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

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
)

// ParseTasks reads a tasks file. The file has one thread ID on each line.
func ParseTasks(data []byte) ([]int, error) {
	var tids []int
	for _, text := range strings.Fields(string(data)) {
		tid, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("tasks: %w", err)
		}
		tids = append(tids, int(tid))
	}
	return tids, nil
}

var (
	// ErrEnded is the error for a thread that has ended.
	ErrEnded = errors.New("thread has ended")
	// ErrUnmounted is the error for a thread whose group is unknown, because resctrl is not mounted any more.
	ErrUnmounted = errors.New("resctrl has been unmounted")
)

// ParseTaskGroup reads /proc/PID/cpu_resctrl_groups (proc_resctrl_show in the kernel). It returns the name of the
// thread's control group ("" for the root group), and the name of the thread's monitoring group ("" if there is none).
func ParseTaskGroup(data []byte) (group, monitoring string, err error) {
	line, rest, _ := strings.Cut(string(data), "\n")
	group, found := strings.CutPrefix(line, "res:")
	if !found {
		return "", "", fmt.Errorf("cpu_resctrl_groups: %q is not of the form res:GROUP", line)
	}
	if group == "" {
		return "", "", ErrUnmounted
	}

	line, _, _ = strings.Cut(rest, "\n")
	return strings.TrimPrefix(group, "/"), strings.TrimPrefix(line, "mon:"), nil
}

// GroupOfTask returns the control group of a thread.
func (t Tree) GroupOfTask(tid int) (string, error) {
	group, _, err := t.GroupsOfTask(tid)
	return group, err
}

// GroupsOfTask returns the control group and the monitoring group of a thread. A kernel without CONFIG_PROC_CPU_RESCTRL does not show
// the monitoring group.
func (t Tree) GroupsOfTask(tid int) (group, monitoring string, err error) {
	proc := path.Join("/proc", strconv.Itoa(tid))
	data, err := t.host.ReadFile(path.Join(proc, "cpu_resctrl_groups"))
	switch {
	case err == nil:
		return ParseTaskGroup(data)
	case errors.Is(err, syscall.ESRCH):
		return "", "", ErrEnded
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", err
	}

	if _, err := t.host.ReadFile(path.Join(proc, "stat")); err != nil {
		return "", "", ErrEnded
	}
	group, err = t.scanFor(tid)
	return group, "", err
}

// scanFor searches the tasks of all groups for a thread. It is for kernels without CONFIG_PROC_CPU_RESCTRL.
func (t Tree) scanFor(tid int) (string, error) {
	groups, err := t.Groups()
	if err != nil {
		return "", err
	}
	if !t.Exists(Root) {
		return "", ErrUnmounted
	}

	for _, name := range groups {
		tids, err := t.Tasks(name)
		if err != nil && !NotExist(err) {
			return "", err
		}

		if slices.Contains(tids, tid) {
			return name, nil
		}
	}
	return "", ErrEnded
}

// Tasks returns the IDs of the threads in a group. Those of a control group include those in its monitoring groups.
func (t Tree) Tasks(group string) ([]int, error) {
	data, err := t.host.ReadFile(t.path(group, "tasks"))
	if err != nil {
		return nil, err
	}
	return ParseTasks(data)
}

// RemoveUnused removes a group unless the group has running tasks. It reports whether the group is gone.
func (t Tree) RemoveUnused(name string) (removed bool, err error) {
	tids, err := t.Tasks(name)
	switch {
	case err != nil && NotExist(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%s: %w", Describe(name), err)
	case !slices.ContainsFunc(tids, t.running):
		err = t.Remove(name)
		return err == nil, err
	}
	return false, nil
}

// running reports whether a task has not ended. A zombie counts as ended, because it stays in its group until its
// parent reaps it, and the parent may never do so.
func (t Tree) running(tid int) bool {
	stat, err := t.host.ReadFile(path.Join("/proc", strconv.Itoa(tid), "stat"))
	if err != nil {
		return !NotExist(err) && !errors.Is(err, syscall.ESRCH)
	}
	// The state is the first field after the last ")", because the process name before it may have any characters
	// (proc_pid_stat(5)). "Z" is a zombie, "X" is dead.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	return len(fields) == 0 || fields[0] != "Z" && fields[0] != "X"
}

// MoveTask moves a thread to a group. The kernel refuses a monitoring group of another control group with EINVAL. The error wraps
// ErrEnded if the thread has ended.
func (t Tree) MoveTask(tid int, group string) error {
	err := t.host.WriteFile(t.path(group, "tasks"), []byte(strconv.Itoa(tid)))
	if errors.Is(err, syscall.ESRCH) {
		return ErrEnded
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", Describe(group), t.explain(err, ""))
	}
	return nil
}
