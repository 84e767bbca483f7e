// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// ErrNoContainer says that runc does not know a container.
var ErrNoContainer = errors.New("no such container")

// runc makes containers out of processes that are in a cgroup and a resctrl group, as runc 1.5 does.
type runc struct {
	machine *Machine

	mu         sync.Mutex // guards what follows
	containers map[string]*container
	lastPID    int
}

type container struct {
	cgroup string // below the roots of the hierarchies
	pids   []int
}

func (r *runc) init(m *Machine) {
	r.machine, r.containers, r.lastPID = m, map[string]*container{}, 1000
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
	if spec.ClosID != "" {
		if _, err := m.resctrl.ReadDir(path.Join(resctrl.MountPoint, spec.ClosID)); err != nil {
			return 0, fmt.Errorf("unable to apply Intel RDT: clos_id %q: %w", spec.ClosID, err)
		}
	}
	c := &container{cgroup: nriruntime.CgroupDir(spec.CgroupsPath)}
	m.cgroups.AddCgroup(c.cgroup)
	if err := m.cgroups.SetUnified(c.cgroup, spec.Unified); err != nil {
		return 0, errors.Join(fmt.Errorf("unable to apply cgroup configuration: %w", err), m.removeCgroup(c.cgroup))
	}
	m.runc.mu.Lock()
	m.runc.containers[spec.ID] = c
	m.runc.mu.Unlock()
	return m.Exec(ctx, spec)
}

// Start is part of nriruntime.OCI.
func (m *Machine) Start(_ context.Context, id string) error {
	_, err := m.runc.find(id)
	return err
}

// Exec is part of nriruntime.OCI.
func (m *Machine) Exec(_ context.Context, spec nriruntime.Spec) (int, error) {
	c, err := m.runc.find(spec.ID)
	if err != nil {
		return 0, err
	}
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	m.runc.lastPID++
	pid := m.runc.lastPID
	c.pids = append(c.pids, pid)
	m.cgroups.AddProcess(c.cgroup, pid)
	m.resctrl.AddTask(pid, spec.ClosID)
	return pid, nil
}

// Fork begins a process where its parent is, which is a process of a container.
func (m *Machine) Fork(id string, parent int) (int, error) {
	c, err := m.runc.find(id)
	if err != nil {
		return 0, err
	}
	m.runc.mu.Lock()
	defer m.runc.mu.Unlock()
	m.runc.lastPID++
	pid := m.runc.lastPID
	c.pids = append(c.pids, pid)
	m.cgroups.AddProcess(c.cgroup, pid)
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
	c := m.runc.containers[id]
	delete(m.runc.containers, id)
	m.runc.mu.Unlock()
	if c == nil {
		return nil
	}
	for _, pid := range c.pids {
		m.cgroups.RemoveProcess(pid)
		m.resctrl.Exit(pid)
	}
	return m.removeCgroup(c.cgroup)
}

func (r *runc) find(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %s: %w", id, ErrNoContainer)
}
