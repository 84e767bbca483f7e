// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

const (
	cgroupRoot  = "/sys/fs/cgroup"
	resctrlRoot = "/sys/fs/resctrl"
)

// machine is this machine: containers are processes that sleep, in cgroups and resctrl groups of the real kernel.
type machine struct {
	hostfs.Root

	mu        sync.Mutex // guards processes
	processes map[string][]*exec.Cmd
}

func newMachine() (*machine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("--real changes resctrl and cgroups and needs root")
	}
	if _, err := os.Stat(cgroupRoot + "/cgroup.controllers"); err != nil {
		return nil, fmt.Errorf("--real needs cgroup v2 at %s: %w", cgroupRoot, err)
	}
	return &machine{Root: "/", processes: map[string][]*exec.Cmd{}}, nil
}

// MakePodCgroup makes a pod's cgroup, and enables the io controller in it.
func (m *machine) MakePodCgroup(parent string) error {
	dir := cgroupRoot
	for _, name := range strings.Split(strings.Trim(parent, "/"), "/") {
		if err := m.WriteFile(path.Join(dir, "cgroup.subtree_control"), []byte("+io")); err != nil {
			return err
		}
		dir = path.Join(dir, name)
		if err := m.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return m.WriteFile(path.Join(dir, "cgroup.subtree_control"), []byte("+io"))
}

// RemovePodCgroup removes a pod's cgroup, and the parent cgroups that have no other pods.
func (m *machine) RemovePodCgroup(parent string) error {
	if err := m.Remove(path.Join(cgroupRoot, parent)); err != nil {
		return err
	}
	_ = m.Remove(path.Join(cgroupRoot, path.Dir(parent))) // the last pod's removal succeeds
	return nil
}

// Create starts a process in the container's cgroup and resctrl group.
func (m *machine) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	dir := path.Join(cgroupRoot, nriruntime.CgroupDir(spec.CgroupsPath))
	if err := m.Mkdir(dir); err != nil {
		return 0, err
	}
	if err := m.Update(ctx, spec.ID, pathed(dir, spec.Unified)); err != nil {
		return 0, errors.Join(err, m.Remove(dir))
	}
	return m.Exec(ctx, spec)
}

// Start does nothing, because the process of the container already sleeps.
func (m *machine) Start(context.Context, string) error { return nil }

func (m *machine) Exec(_ context.Context, spec nriruntime.Spec) (int, error) {
	// The process outlives the request that starts it.
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	m.mu.Lock()
	m.processes[spec.ID] = append(m.processes[spec.ID], cmd)
	m.mu.Unlock()
	pid := []byte(strconv.Itoa(cmd.Process.Pid))
	dir := path.Join(cgroupRoot, nriruntime.CgroupDir(spec.CgroupsPath))
	if err := m.WriteFile(path.Join(dir, "cgroup.procs"), pid); err != nil {
		return 0, err
	}
	if spec.ClosID == "" {
		return cmd.Process.Pid, nil
	}
	return cmd.Process.Pid, m.WriteFile(path.Join(resctrlRoot, spec.ClosID, "tasks"), pid)
}

// Update writes values into a cgroup, line by line, as runc does.
func (m *machine) Update(_ context.Context, id string, unified map[string]string) error {
	dir, err := m.dirOf(id)
	if err != nil {
		return err
	}
	for _, file := range slices.Sorted(maps.Keys(unified)) {
		target := path.Join(dir, file)
		if path.IsAbs(file) {
			target = file
		}
		for line := range strings.Lines(unified[file]) {
			if err := m.WriteFile(target, []byte(strings.TrimSpace(line))); err != nil {
				return err
			}
		}
	}
	return nil
}

// pathed adds the directory to the names of the files. It is for a cgroup without a process, which dirOf cannot find.
func pathed(dir string, unified map[string]string) map[string]string {
	files := make(map[string]string, len(unified))
	for file, value := range unified {
		files[path.Join(dir, file)] = value
	}
	return files
}

// dirOf finds a container's cgroup by its first process. It returns "" if there is no process yet.
func (m *machine) dirOf(id string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.processes[id]) == 0 {
		return "", nil
	}
	data, err := m.ReadFile(fmt.Sprintf("/proc/%d/cgroup", m.processes[id][0].Process.Pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if dir, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Join(cgroupRoot, dir), nil
		}
	}
	return "", errors.New("the process is in no cgroup v2")
}

func (m *machine) Delete(_ context.Context, id string) error {
	dir, err := m.dirOf(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cmd := range m.processes[id] {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error is that it was killed
	}
	delete(m.processes, id)
	if dir == "" {
		return nil
	}
	return m.Remove(dir)
}
