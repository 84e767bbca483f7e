// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"maps"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// podOf returns the key of a container's pod in the map `pods`. A new sandbox of a pod has another key.
func podOf(resource string, container classes.Holder) key {
	return key{resource: resource, id: container.SandboxID}
}

// beginFirst begins to count the pod of a container that is about to start. The pod has no other running container.
func (m *Meter) beginFirst(ctx context.Context, resource string, e state.Holding) {
	reading, err := m.measureHolder(ctx, e.Holder, resource) // what the OCI runtime has used in the container's cgroup
	m.count(e.Holder, resource, e.ObservedClass(resource), reading, err)
	m.beginPod(ctx, resource, e.Holder)
}

// beginPods begins to count the pods of running containers, as beginPod does. The caller has counted these containers.
func (m *Meter) beginPods(ctx context.Context, resource string, entries []state.Holding) {
	for _, e := range entries {
		if e.Phase.Started() && e.Scope() == classes.ContainerScope {
			m.beginPod(ctx, resource, e.Holder)
		}
	}
}

// beginPod records the counters of a container's pod, unless they are recorded already. The recorded usage of the pod
// is not counted again for the pod's containers.
func (m *Meter) beginPod(ctx context.Context, resource string, container classes.Holder) {
	pod := podOf(resource, container)
	if meter := m.holderMeter(resource); meter == nil || !meter.SumsEnded() || m.hasBegun(pod) {
		return
	}
	reading, err := m.measurePod(ctx, resource, container)
	if err != nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[pod] = maps.Clone(reading)
}

func (m *Meter) hasBegun(pod key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[pod] != nil
}

// measurePod reads the usage of the pod of a container.
func (m *Meter) measurePod(ctx context.Context, resource string, container classes.Holder) (classes.Reading, error) {
	pod := container
	pod.ID, pod.Container, pod.CgroupsPath, pod.PID = pod.SandboxID, "", pod.PodCgroupsPath, 0
	return m.measureHolder(ctx, pod, resource)
}

// countEnded counts the usage of a container whose cgroup is gone. In cgroup v2, the counters of a pod's cgroup include
// those of the cgroups that were below it. So the container has used what the pod's counters have grown by, less what was
// counted for the pod's containers, and less what the running containers have used since their last readings. In cgroup
// v1, the pod's counters lose those of a removed cgroup, so the pod is not counted.
//
// countEnded reads the pod before the running containers, so that it counts nothing that will be counted for them. If the
// kernel does not answer for the pod or one of the containers, countEnded counts nothing.
func (m *Meter) countEnded(ctx context.Context, h classes.Holder, resource, name string) {
	pod := podOf(resource, h)
	if h.Scope() != classes.ContainerScope || !m.hasBegun(pod) {
		return
	}
	total, err := m.measurePod(ctx, resource, h)
	if err != nil {
		return
	}
	running, err := m.measureOthers(ctx, h, resource)
	if err != nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.base, key{resource: resource, id: h.ID}) // add then ignores an older reading of a sample that is in progress
	counted := m.pods[pod]
	if counted == nil {
		return
	}
	for series, value := range total {
		rest := value - counted[series]
		for id, reading := range running {
			rest -= max(0, reading[series]-m.base[key{resource: resource, id: id}][series])
		}
		m.grow(class{resource, name}, pod, series, rest)
	}
}

// measureOthers reads the usage of the other running containers in the pod of a container. The keys of the result are
// container IDs.
func (m *Meter) measureOthers(ctx context.Context, h classes.Holder, resource string) (map[string]classes.Reading, error) {
	readings := map[string]classes.Reading{}
	for _, e := range m.others(h) {
		reading, err := m.measureHolder(ctx, e.Holder, resource)
		if err != nil && !errors.Is(err, classes.ErrEnded) {
			return nil, err
		}
		readings[e.ID] = reading
	}
	return readings, nil
}

// others returns the other running containers in the pod of a container.
func (m *Meter) others(h classes.Holder) []state.Holding {
	return m.store.InPod(h.PodUID, func(e *state.Holding) bool {
		return e.ID != h.ID && e.Phase.Started() && e.Scope() == classes.ContainerScope
	})
}
