// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// These are annotations that containerd puts into every spec (its internal/cri/annotations).
const (
	annotationContainerName = "io.kubernetes.cri.container-name"
	annotationContainerType = "io.kubernetes.cri.container-type"
	annotationSandboxID     = "io.kubernetes.cri.sandbox-id"
	annotationSandboxName   = "io.kubernetes.cri.sandbox-name"
	annotationSandboxUID    = "io.kubernetes.cri.sandbox-uid"
	annotationSandboxNS     = "io.kubernetes.cri.sandbox-namespace"
)

// UpdateContainer does what the kubelet's in-place resize does. The plugins may change the requested values; the result
// is merged into the spec, and runc gets all of the spec's resources again.
func (r *Runtime) UpdateContainer(ctx context.Context, id string, resources *api.LinuxResources) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	defer r.bridge.blockSync()()
	set, err := r.bridge.updateContainer(ctx, c.pod.nri(), r.nri(c), resources)
	if err != nil {
		return fmt.Errorf("NRI container update failed: %w", err)
	}

	if set == nil {
		set = resources
	}

	if err := r.updateResources(ctx, id, set); err != nil {
		return fmt.Errorf("failed to update resources: %w", err)
	}

	r.logFailed(ctx, "update", r.bridge.postUpdateContainer(ctx, c.pod.nri(), r.nri(c)))
	return nil
}

// updateResources merges resources into the container's spec, and passes the result to runc. If runc fails, it restores
// the spec. A container that is gone needs no update.
func (r *Runtime) updateResources(ctx context.Context, id string, resources *api.LinuxResources) error {
	c, err := r.container(id)
	if errors.Is(err, ErrNotFound) {
		return nil
	}

	old, running := r.mergeResources(c, resources)
	if !running {
		return nil
	}

	unified := r.specOf(c).Unified
	if r.options.CRIO {
		unified = crioUnified(resources)
	}
	if err := r.oci.Update(ctx, id, unified); err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		c.setResources(old)
		return fmt.Errorf("update container %q: %w", id, err)
	}

	return nil
}

// crioUnified returns the cgroup v2 files that CRI-O changes. CRI-O passes only the changed values to the OCI runtime.
// With a memory limit, it also sets an equal limit of memory and swap together, so that the container gets no swap
// (toOCIResources in server/container_update_resources.go).
func crioUnified(change *api.LinuxResources) map[string]string {
	unified := maps.Clone(change.GetUnified())
	if _, sets := unified["memory.swap.max"]; !sets && change.GetMemory().GetLimit() != nil {
		unified = map[string]string{"memory.swap.max": "0"}
		maps.Copy(unified, change.GetUnified())
	}
	return unified
}

func (r *Runtime) mergeResources(c *container, change *api.LinuxResources) (old *api.LinuxResources, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = c.resources
	merged := withUnified(old, change.GetUnified())
	if change.GetCpu() != nil {
		merged.Cpu = change.Cpu
	}
	if change.GetMemory() != nil {
		merged.Memory = change.Memory
	}
	c.setResources(merged)
	return old, c.state == api.ContainerState_CONTAINER_RUNNING
}

// withUnified returns a copy of resources with more values of cgroup files.
func withUnified(resources *api.LinuxResources, more map[string]string) *api.LinuxResources {
	merged := proto.Clone(resources).(*api.LinuxResources)
	if merged.Unified == nil {
		merged.Unified = map[string]string{}
	}
	maps.Copy(merged.Unified, more)
	return merged
}

// setResources replaces the resources in the spec. The caller holds Runtime.mu.
func (c *container) setResources(resources *api.LinuxResources) {
	c.resources, c.spec.Unified = resources, resources.Unified
}

// adjust applies the adjustments of the plugins to the spec. The caller holds Runtime.mu. It supports only what the
// tests need, and returns an error for some other adjustments.
func (c *container) adjust(a *api.ContainerAdjustment) error {
	for key, value := range a.GetAnnotations() {
		if removed, ok := api.IsMarkedForRemoval(key); ok {
			delete(c.spec.Annotations, removed)
			continue
		}
		c.spec.Annotations[key] = value
	}

	if unified := a.GetLinux().GetResources().GetUnified(); len(unified) > 0 {
		c.setResources(withUnified(c.resources, unified))
	}

	if rdt := a.GetLinux().GetRdt(); rdt != nil {
		c.spec.ClosID = rdt.GetClosId().GetValue()
		c.spec.Monitoring = rdt.GetEnableMonitoring().GetValue()
	}

	if score := a.GetLinux().GetOomScoreAdj(); score != nil {
		c.spec.OOMScoreAdj = int(score.GetValue())
	}

	c.spec.Rlimits = append(c.spec.Rlimits, a.GetRlimits()...)
	if priority := a.GetLinux().GetIoPriority(); priority != nil {
		c.spec.IOPriority = priority
	}
	if scheduler := a.GetLinux().GetScheduler(); scheduler != nil {
		c.spec.Scheduler = scheduler
	}

	if policy := a.GetLinux().GetMemoryPolicy(); policy != nil {
		c.spec.MemoryPolicy = policy
	}

	rest := proto.Clone(a).(*api.ContainerAdjustment)
	rest.Rlimits = nil
	if rest.Annotations = nil; rest.Linux != nil {
		rest.Linux.Rdt, rest.Linux.OomScoreAdj, rest.Linux.IoPriority, rest.Linux.Scheduler = nil, nil, nil, nil
		rest.Linux.MemoryPolicy = nil
		if rest.Linux.Resources != nil {
			rest.Linux.Resources.Unified = nil
		}
	}
	if hasValue(rest.ProtoReflect()) {
		return fmt.Errorf("the simulated runtime adjusts only annotations, unified values, RDT and properties of processes, not %v", rest)
	}
	return nil
}

// hasValue reports whether a message or one of its nested messages has a value. NRI makes some messages even if they
// have no value.
func hasValue(m protoreflect.Message) (has bool) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		has = field.Message() == nil || field.IsList() || field.IsMap() || hasValue(value.Message())
		return !has
	})
	return has
}

// nri returns the container as plugins see it.
func (r *Runtime) nri(c *container) *api.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.nri()
}

// nri returns the container as plugins see it. The caller holds Runtime.mu. If the spec and the CRI request have an
// annotation with the same key, the container has the value of the CRI request.
func (c *container) nri() *api.Container {
	annotations := maps.Clone(c.spec.Annotations)
	maps.Copy(annotations, c.config.Annotations)
	var devices []*api.CDIDevice
	for _, name := range c.config.CDIDevices {
		devices = append(devices, &api.CDIDevice{Name: name})
	}
	return &api.Container{
		CDIDevices:   devices,
		Image:        &api.Image{Digest: c.config.ImageDigest},
		Id:           c.id,
		PodSandboxId: c.pod.id,
		Name:         c.config.Name,
		State:        c.state,
		Labels:       maps.Clone(c.config.Labels),
		Annotations:  annotations,
		Args:         slices.Clone(c.config.Args),
		Env:          slices.Clone(c.config.Env),
		Mounts:       slices.Clone(c.config.Mounts),
		Pid:          uint32(c.pid),
		Rlimits:      slices.Clone(c.spec.Rlimits),
		CreatedAt:    nanoseconds(c.createdAt),
		StartedAt:    nanoseconds(c.startedAt),
		Linux: &api.LinuxContainer{
			Devices:     slices.Clone(c.config.Devices),
			Resources:   proto.Clone(c.resources).(*api.LinuxResources),
			CgroupsPath: c.spec.CgroupsPath,
			OomScoreAdj: api.Int(c.spec.OOMScoreAdj),
			IoPriority:  c.spec.IOPriority,
			Scheduler:   c.spec.Scheduler,
			Rdt:         c.rdt(),
		},
	}
}

// nanoseconds returns a time as CRI does, in nanoseconds since 1970. The zero time is 0.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func (c *container) rdt() *api.LinuxRdt {
	if c.spec.ClosID == "" && !c.spec.Monitoring {
		return nil
	}
	return &api.LinuxRdt{ClosId: api.String(c.spec.ClosID), EnableMonitoring: api.Bool(c.spec.Monitoring)}
}

// Snapshot returns what a plugin gets in its synchronization: all pods, and the containers that have not exited.
func (r *Runtime) Snapshot() ([]*api.PodSandbox, []*api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pods []*api.PodSandbox
	for _, p := range r.pods {
		pods = append(pods, p.nri())
	}
	var containers []*api.Container
	for _, c := range r.containers {
		if c.state != api.ContainerState_CONTAINER_STOPPED {
			containers = append(containers, c.nri())
		}
	}
	return pods, containers
}

// Container returns the state of a container.
func (r *Runtime) Container(id string) (Container, error) {
	c, err := r.container(id)
	if err != nil {
		return Container{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return Container{
		ID: id, PodID: c.pod.id, Name: c.config.Name,
		State: c.state, PID: c.pid, Spec: c.spec.clone(), Message: c.message,
	}, nil
}

// container returns the container with an ID. If `states` are given and the container is in none of them, it returns
// ErrState.
func (r *Runtime) container(id string, states ...api.ContainerState) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.containers, func(c *container) bool { return c.id == id })
	if i < 0 {
		return nil, fmt.Errorf("container %q: %w", id, ErrNotFound)
	}
	c := r.containers[i]
	if len(states) > 0 && !slices.Contains(states, c.state) {
		return nil, fmt.Errorf("container %q is %s: %w", id, c.state, ErrState)
	}
	return c, nil
}

func (r *Runtime) containersOf(podID string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, c := range r.containers {
		if c.pod.id == podID {
			ids = append(ids, c.id)
		}
	}
	return ids
}

func (r *Runtime) setState(c *container, state api.ContainerState, pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.state, c.pid = state, pid
	if state == api.ContainerState_CONTAINER_RUNNING {
		c.startedAt = time.Now()
	}
}

func (r *Runtime) specOf(c *container) Spec {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.spec.clone()
}

func (s Spec) clone() Spec {
	s.Annotations, s.Unified = maps.Clone(s.Annotations), maps.Clone(s.Unified)
	return s
}
