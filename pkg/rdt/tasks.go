// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

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

// ParseTasks reads a tasks file: thread IDs, one a line.
func ParseTasks(data []byte) ([]int, error) {
	var tids []int
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		tid, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("tasks: %w", err)
		}
		tids = append(tids, int(tid))
	}
	return tids, nil
}

// ParseTaskGroup reads /proc/PID/cpu_resctrl_groups (proc_resctrl_show in the kernel): the control group of a thread, ""
// for the root group. ok is false when resctrl is not mounted.
func ParseTaskGroup(data []byte) (group string, ok bool, err error) {
	line, _, _ := strings.Cut(string(data), "\n")
	name, found := strings.CutPrefix(line, "res:")
	if !found {
		return "", false, fmt.Errorf("cpu_resctrl_groups: %q is not of the form res:GROUP", line)
	}
	if name == "" {
		return "", false, nil
	}
	return strings.TrimPrefix(name, "/"), true, nil
}

var (
	// errEnded is for a thread that is no more.
	errEnded = errors.New("thread has ended")
	// errUnmounted says that there are no groups at all.
	errUnmounted = errors.New("resctrl has been unmounted")
)

// groupOfTask is the control group that a thread is in.
func (t tree) groupOfTask(tid int) (string, error) {
	proc := path.Join("/proc", strconv.Itoa(tid))
	data, err := t.host.ReadFile(path.Join(proc, "cpu_resctrl_groups"))
	switch {
	case err == nil:
		group, ok, err := ParseTaskGroup(data)
		if err == nil && !ok {
			err = errUnmounted
		}
		return group, err
	case errors.Is(err, syscall.ESRCH):
		return "", errEnded
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if _, err := t.host.ReadFile(path.Join(proc, "stat")); err != nil {
		return "", errEnded
	}
	return t.scanFor(tid)
}

// scanFor looks through the tasks of all groups, on kernels without CONFIG_PROC_CPU_RESCTRL.
func (t tree) scanFor(tid int) (string, error) {
	groups, err := groupNames(t.host, t.point)
	if err != nil {
		return "", err
	}
	if !t.exists(rootGroup) {
		return "", errUnmounted
	}
	for _, name := range groups {
		tids, err := t.tasks(name)
		if err != nil && !gone(err) {
			return "", err
		}
		if slices.Contains(tids, tid) {
			return name, nil
		}
	}
	return "", errEnded
}

// tasks are the threads of a group. One that is locked to a part of the cache has no such file, and none.
func (t tree) tasks(group string) ([]int, error) {
	data, err := t.host.ReadFile(t.path(group, "tasks"))
	if err != nil {
		return nil, err
	}
	return ParseTasks(data)
}

// allEnded says whether there are only processes in a group that have ended, and that nobody has waited for: nothing of them runs any more,
// but their parents may leave them there for ever.
func (t tree) allEnded(group string) bool {
	tids, err := t.tasks(group)
	return err == nil && !slices.ContainsFunc(tids, func(tid int) bool {
		stat, err := t.host.ReadFile(path.Join("/proc", strconv.Itoa(tid), "stat"))
		return err != nil && !gone(err) && !errors.Is(err, syscall.ESRCH) || err == nil && !isZombie(stat)
	})
}

// isZombie reads the state in /proc/PID/stat (proc_pid_stat(5)), which comes after the name. The name may have any characters.
func isZombie(stat []byte) bool {
	_, after, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return found && (bytes.HasPrefix(after, []byte("Z")) || bytes.HasPrefix(after, []byte("X")))
}

// moveTask puts one thread into a group.
func (t tree) moveTask(tid int, group string) error {
	err := t.host.WriteFile(t.path(group, "tasks"), []byte(strconv.Itoa(tid)))
	if errors.Is(err, syscall.ESRCH) {
		return errEnded
	}
	if err != nil {
		return fmt.Errorf("move to %s: %w", groupText(group), t.explain(err, ""))
	}
	return nil
}
