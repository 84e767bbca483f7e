// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
)

// plugin records its hooks, and answers as configured.
type plugin struct {
	create func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, error)
	start  func(*api.Container) error
	update func(*api.Container, *api.LinuxResources) []*api.ContainerUpdate

	mu     sync.Mutex // guards what follows
	events []string
	synced []*api.Container
}

func (p *plugin) record(event, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, event+" "+name)
}

func (p *plugin) received() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events)
}

func (p *plugin) Synchronize(_ context.Context, _ []*api.PodSandbox, c []*api.Container) ([]*api.ContainerUpdate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = c
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("run", pod.Name)
	if strings.Contains(pod.Name, "refused") {
		return errors.New("no such pods here")
	}
	return nil
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("stop", pod.Name)
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("remove", pod.Name)
	return nil
}

func (p *plugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.record("create", c.Name)
	if p.create == nil {
		return nil, nil, nil
	}
	a, err := p.create(pod, c)
	return a, nil, err
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("start", c.Name)
	if p.start == nil {
		return nil
	}
	return p.start(c)
}

func (p *plugin) UpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	p.record("update", c.Name)
	if p.update == nil {
		return nil, nil
	}
	return p.update(c, r), nil
}

func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.record("stop", c.Name)
	return nil, nil
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("remove", c.Name)
	return nil
}

// machine records what runc would receive.
type machine struct {
	nriruntime.NoMachine
	mu      sync.Mutex // guards what follows
	created nriruntime.Spec
	unified []map[string]string
	refuse  error
}

func (m *machine) Create(ctx context.Context, spec nriruntime.Spec) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created = spec
	if m.refuse != nil {
		return 0, m.refuse
	}
	return m.NoMachine.Create(ctx, spec)
}

func (m *machine) Update(_ context.Context, _ string, unified map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	m.unified = append(m.unified, maps.Clone(unified))
	return nil
}

func (m *machine) refusing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}
