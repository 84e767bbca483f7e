// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// ErrNoContainer is the error for a container that does not exist.
var ErrNoContainer = errors.New("no such container")

// ErrStopped is the error for a container whose first process has ended.
var ErrStopped = errors.New("cannot start a container that has stopped")

// runc puts the processes of containers into cgroups and resctrl groups, as runc 1.5 does.
type runc struct {
	machine *Machine

	mu         sync.Mutex // guards the fields below
	containers map[string]*container
	processes  map[int]Process
	lastPID    int
}

type container struct {
	cgroup string // below the roots of the hierarchies
	// monitoring is the container's monitoring group below the mount point of resctrl, or empty.
	monitoring string
	pids       []int
}

func (r *runc) init(m *Machine) {
	r.machine, r.containers, r.processes, r.lastPID = m, map[string]*container{}, map[int]Process{}, 1000
}

// MakePodCgroup is part of nriruntime.OCI.
func (m *Machine) MakePodCgroup(parent string) error {
	m.cgroups.AddCgroup(nriruntime.CgroupDir(parent))
	return nil
}

// RemovePodCgroup is part of nriruntime.OCI.
func (m *Machine) RemovePodCgroup(parent string) error {
	return m.removeCgroup(nriruntime.CgroupDir(parent))
}

func (m *Machine) removeCgroup(dir string) error {
	var errs []error
	for _, root := range m.cgroups.Roots() {
		errs = append(errs, m.cgroups.Remove(path.Join(root, dir)))
	}
	return errors.Join(errs...)
}

// Create is part of nriruntime.OCI.
func (m *Machine) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	group, err := m.makeGroup(spec)
	if err != nil {
		return 0, err
	}

	c := &container{cgroup: nriruntime.CgroupDir(spec.CgroupsPath), monitoring: group}
	if !spec.Monitoring {
		c.monitoring = ""
	}

	m.cgroups.AddCgroup(c.cgroup)
	if err := m.cgroups.SetUnified(c.cgroup, spec.Unified); err != nil {
		return 0, errors.Join(fmt.Errorf("unable to apply cgroup configuration: %w", err), m.destroy(c))
	}

	m.runc.mu.Lock()
	m.runc.containers[spec.ID] = c
	m.runc.mu.Unlock()
	pid, err := m.Exec(ctx, spec)
	if err != nil {
		return 0, errors.Join(err, m.Delete(ctx, spec.ID))
	}

	return pid, nil
}

// makeGroup returns the path of a container's resctrl group below the mount point. If the container has a monitoring
// group, makeGroup makes it. The control group must exist.
func (m *Machine) makeGroup(spec nriruntime.Spec) (string, error) {
	if spec.ClosID != "" {
		if _, err := m.resctrl.ReadDir(path.Join(resctrl.MountPoint, spec.ClosID)); err != nil {
			return "", fmt.Errorf("unable to apply Intel RDT: clos_id %q: %w", spec.ClosID, err)
		}
	}
	group := groupOf(spec)
	if !spec.Monitoring {
		return group, nil
	}
	if err := m.resctrl.Mkdir(path.Join(resctrl.MountPoint, group)); err != nil {
		return "", fmt.Errorf("unable to apply Intel RDT: monitoring group: %w", err)
	}
	return group, nil
}

// groupOf returns the path, below the mount point, of the resctrl group that the spec requests for a container.
func groupOf(spec nriruntime.Spec) string {
	if spec.Monitoring {
		return path.Join(spec.ClosID, "mon_groups", spec.ID)
	}
	return spec.ClosID
}

// Start is part of nriruntime.OCI. It fails if the container's first process has ended.
func (m *Machine) Start(_ context.Context, id string) error {
	c, err := m.runc.find(id)
	if err == nil && !m.exists(c.pids[0]) {
		err = fmt.Errorf("container %s: %w", id, ErrStopped)
	}
	return err
}

// exists reports whether a process exists.
func (m *Machine) exists(pid int) bool {
	_, err := m.cgroups.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil
}

// Exec is part of nriruntime.OCI.
func (m *Machine) Exec(_ context.Context, spec nriruntime.Spec) (int, error) {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	c, err := m.runc.lookup(spec.ID)
	if err != nil {
		return 0, err
	}

	m.runc.lastPID++
	pid := m.runc.lastPID
	m.cgroups.AddProcess(c.cgroup, pid)
	m.runc.processes[pid] = processOf(spec)
	m.resctrl.AddTask(pid, "")
	if group := groupOf(spec); group != "" {
		// Like runc in setnsProcess.start, Exec ignores that a group is missing.
		tasks := path.Join(resctrl.MountPoint, group, "tasks")
		if err := m.resctrl.WriteFile(tasks, fmt.Append(nil, pid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.exit(pid)
			return 0, fmt.Errorf("unable to join the resctrl group: %w", err)
		}
	}

	c.pids = append(c.pids, pid)
	return pid, nil
}

func (m *Machine) exit(pid int) {
	m.cgroups.RemoveProcess(pid)
	m.resctrl.Exit(pid)
}

// destroy ends the processes of a container, and removes its cgroup and its monitoring group. The monitoring group may
// be missing, because it was removed with its control group, or was moved.
func (m *Machine) destroy(c *container) error {
	for _, pid := range c.pids {
		m.exit(pid)
	}
	err := m.removeCgroup(c.cgroup)
	if c.monitoring == "" {
		return err
	}
	if gone := m.resctrl.Remove(path.Join(resctrl.MountPoint, c.monitoring)); !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// Fork starts a process in a container and returns its PID. `parent` is the PID of its parent, whose cgroup and resctrl group it
// shares.
func (m *Machine) Fork(id string, parent int) (int, error) {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	c, err := m.runc.lookup(id)
	if err != nil {
		return 0, err
	}
	m.runc.lastPID++
	pid := m.runc.lastPID
	c.pids = append(c.pids, pid)
	m.cgroups.AddProcess(c.cgroup, pid)
	m.runc.processes[pid] = m.runc.processes[parent]
	m.resctrl.Fork(parent, pid)
	return pid, nil
}

// Update is part of nriruntime.OCI.
func (m *Machine) Update(_ context.Context, id string, unified map[string]string) error {
	c, err := m.runc.find(id)
	if err != nil {
		return err
	}
	return m.cgroups.SetUnified(c.cgroup, unified)
}

// Delete is part of nriruntime.OCI.
func (m *Machine) Delete(_ context.Context, id string) error {
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	c := m.runc.containers[id]
	delete(m.runc.containers, id)
	if c == nil {
		return nil
	}
	return m.destroy(c)
}

// reap removes ended processes from their resctrl groups.
func (r *runc) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		for _, pid := range c.pids {
			if !r.machine.exists(pid) {
				r.machine.resctrl.Exit(pid)
			}
		}
	}
}

func (r *runc) find(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookup(id)
}

// lookup returns a container. The caller holds mu.
func (r *runc) lookup(id string) (*container, error) {
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, ErrNoContainer)
}
