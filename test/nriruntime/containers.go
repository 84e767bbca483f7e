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
)

// ContainerConfig is the configuration of a container that the runtime gets from the kubelet and from the image.
type ContainerConfig struct {
	Name string
	// Annotations has the CRI annotations, which the kubelet and device plugins set. Pods cannot set them.
	Annotations map[string]string
	Labels      map[string]string
	// ImageDigest is the digest of the image. It is empty for a runtime that does not report images.
	ImageDigest string
	Args, Env   []string
	// CDIDevices has the names of the devices in the CRI request, which the kubelet sets for ResourceClaims. The runtime
	// also puts the environment variables of the devices into Env.
	CDIDevices []string
	Mounts     []*api.Mount
	Devices    []*api.LinuxDevice
	// Resources has the limits in the CRI request.
	Resources *api.LinuxResources
	// OOMScoreAdj is the OOM score that the kubelet has computed.
	OOMScoreAdj int
	// ClosID is the resctrl group of the class that the runtime's own RDT configuration gives to the container.
	ClosID string
}

// Container is the state of a container.
type Container struct {
	ID, PodID, Name string
	State           api.ContainerState
	// PID is the ID of the container's first process, or 0 while there is none.
	PID  int
	Spec Spec
	// Message is the reason why the container could not be started.
	Message string
}

type container struct {
	id     string
	pod    *pod
	config ContainerConfig

	// Runtime.mu guards the following fields as soon as the container is in Runtime.containers. Before, only CreateContainer uses
	// them.
	state     api.ContainerState
	pid       int
	createdAt time.Time
	startedAt time.Time
	message   string
	resources *api.LinuxResources // linux.resources of the spec
	spec      Spec                // Spec.Unified is always the same as resources
}

// CreateContainer gets the adjustments of the plugins and creates a container. CRI-O calls runc create here; containerd
// calls it in StartContainer.
func (r *Runtime) CreateContainer(ctx context.Context, podID string, config ContainerConfig) (id string, err error) {
	p, err := r.pod(podID)
	if err != nil {
		return "", err
	}

	c := r.newContainer(p, config)
	defer r.bridge.blockSync()()
	if err := r.adjust(ctx, c); err != nil {
		r.undoCreate(ctx, c)
		return "", fmt.Errorf("failed to create containerd container: %w", err)
	}

	if r.options.CRIO {
		if c.pid, err = r.oci.Create(ctx, r.specOf(c)); err != nil {
			return "", fmt.Errorf("container create failed: %w", err)
		}
	}

	r.mu.Lock()
	c.state, c.createdAt = api.ContainerState_CONTAINER_CREATED, time.Now()
	r.containers = append(r.containers, c)
	r.mu.Unlock()
	r.logFailed(ctx, "creation", r.bridge.postCreateContainer(ctx, p.nri(), r.nri(c)))
	return c.id, nil
}

func (r *Runtime) newContainer(p *pod, config ContainerConfig) *container {
	id := r.newID("container")
	resources := &api.LinuxResources{}
	if config.Resources != nil {
		resources = proto.Clone(config.Resources).(*api.LinuxResources)
	}

	return &container{
		id: id, pod: p, config: config, resources: resources,
		spec: Spec{
			ID:          id,
			CgroupsPath: cgroupsPath(p.config.CgroupParent, id),
			Unified:     resources.Unified,
			ClosID:      config.ClosID,
			OOMScoreAdj: config.OOMScoreAdj,
			Annotations: map[string]string{
				annotationContainerName: config.Name,
				annotationContainerType: "container",
				annotationSandboxID:     p.id,
				annotationSandboxName:   p.config.Name,
				annotationSandboxUID:    p.config.UID,
				annotationSandboxNS:     p.config.Namespace,
			},
		},
	}
}

func (r *Runtime) adjust(ctx context.Context, c *container) error {
	adjustment, err := r.bridge.createContainer(ctx, c.pod.nri(), r.nri(c))
	if err != nil {
		return fmt.Errorf("failed to get NRI adjustment for container: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.adjust(adjustment); err != nil {
		return fmt.Errorf("failed to NRI-adjust container Spec: %w", err)
	}
	return nil
}

// undoCreate calls the hooks for the end of a container whose creation failed. At this point containerd has only the
// container's spec, so plugins get no labels and only the annotations of the spec.
func (r *Runtime) undoCreate(ctx context.Context, c *container) {
	bare := r.nri(c)
	bare.Labels, bare.Annotations = nil, maps.Clone(c.spec.Annotations)
	r.logFailed(ctx, "undone creation", r.bridge.stopContainer(ctx, c.pod.nri(), bare))
	r.logFailed(ctx, "undone creation", r.bridge.removeContainer(ctx, c.pod.nri(), bare))
}

// StartContainer calls the plugins and starts the container. Unless the runtime follows CRI-O, it first calls runc
// create.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	c, err := r.container(id, api.ContainerState_CONTAINER_CREATED)
	if err != nil {
		return err
	}

	if !r.options.CRIO {
		pid, err := r.oci.Create(ctx, r.specOf(c))
		if err != nil {
			return r.failStart(ctx, c, fmt.Errorf("failed to create containerd task: %w", err))
		}
		r.setState(c, api.ContainerState_CONTAINER_CREATED, pid)
	}
	defer r.bridge.blockSync()()
	switch err := r.bridge.startContainer(ctx, c.pod.nri(), r.nri(c)); {
	case r.options.CRIO:
		r.logFailed(ctx, "start", err)
	case err != nil:
		r.logFailed(ctx, "failed start", r.bridge.stopContainer(ctx, c.pod.nri(), r.nri(c)))
		return r.failStart(ctx, c, fmt.Errorf("NRI container start failed: %w", err))
	}

	if err := r.oci.Start(ctx, id); err != nil {
		r.logFailed(ctx, "failed start", r.bridge.stopContainer(ctx, c.pod.nri(), r.nri(c)))
		return r.failStart(ctx, c, fmt.Errorf("failed to start containerd task %q: %w", id, err))
	}

	r.setState(c, api.ContainerState_CONTAINER_RUNNING, int(r.nri(c).GetPid()))
	r.logFailed(ctx, "start", r.bridge.postStartContainer(ctx, c.pod.nri(), r.nri(c)))
	return nil
}

func (r *Runtime) failStart(ctx context.Context, c *container, cause error) error {
	r.mu.Lock()
	c.state, c.pid, c.message = api.ContainerState_CONTAINER_STOPPED, 0, cause.Error()
	r.mu.Unlock()
	return errors.Join(cause, r.oci.Delete(ctx, c.id))
}

// Exit ends the container's processes as if they had ended by themselves. Exit does not wait for the hooks. The
// channel `done` is closed after the hooks have been called.
func (r *Runtime) Exit(ctx context.Context, id string) (done <-chan struct{}, err error) {
	c, err := r.container(id, api.ContainerState_CONTAINER_RUNNING)
	if err != nil {
		return nil, err
	}
	err = r.oci.Delete(ctx, id)
	r.setState(c, api.ContainerState_CONTAINER_STOPPED, 0)
	exited, notified := r.nri(c), make(chan struct{})
	r.exits.Go(func() {
		defer close(notified)
		ctx := context.WithoutCancel(ctx)
		r.logFailed(ctx, "exit", r.bridge.stopContainer(ctx, c.pod.nri(), exited))
	})
	return notified, err
}

// StopContainer ends the container's processes if the container runs. It calls the hooks, unless they were already called
// because of an earlier exit.
func (r *Runtime) StopContainer(ctx context.Context, id string) error {
	defer r.bridge.blockSync()()
	if _, err := r.Exit(ctx, id); err != nil && !errors.Is(err, ErrState) {
		return err
	}
	c, err := r.container(id)
	if err != nil {
		return err
	}
	r.logFailed(ctx, "stop", r.bridge.stopContainer(ctx, c.pod.nri(), r.nri(c)))
	return nil
}

// RemoveContainer stops the container if it runs, and forgets it.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if _, err := r.Exit(ctx, id); err != nil && !errors.Is(err, ErrState) {
		return err
	}
	c, err := r.container(id)
	if err != nil {
		return err
	}
	defer r.bridge.blockSync()()
	r.logFailed(ctx, "removal", r.bridge.removeContainer(ctx, c.pod.nri(), r.nri(c)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = slices.DeleteFunc(r.containers, func(c *container) bool { return c.id == id })
	return nil
}

// Exec starts one more process in a running container.
func (r *Runtime) Exec(ctx context.Context, id string) (pid int, err error) {
	c, err := r.container(id, api.ContainerState_CONTAINER_RUNNING)
	if err != nil {
		return 0, err
	}
	return r.oci.Exec(ctx, r.specOf(c))
}
