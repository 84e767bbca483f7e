// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

func (b *bridge) runPod(ctx context.Context, p *api.PodSandbox) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		defer b.set(p.GetId(), running)
		defer b.observe("RunPodSandbox", time.Now())
		return nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: p})
	})
}

func (b *bridge) stopPod(ctx context.Context, p *api.PodSandbox) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		if !b.needsStop(p.GetId()) {
			return nil
		}
		defer b.set(p.GetId(), stopped)
		defer b.observe("StopPodSandbox", time.Now())
		return nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p})
	})
}

func (b *bridge) removePod(ctx context.Context, p *api.PodSandbox) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		if b.state[p.GetId()] == removed {
			return nil
		}
		defer b.set(p.GetId(), removed)
		defer b.observe("RemovePodSandbox", time.Now())
		return nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p})
	})
}

func (b *bridge) createContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (adjust *api.ContainerAdjustment, err error) {
	err = b.relay(func(nri *adaptation.Adaptation) error {
		defer b.set(c.GetId(), created)
		began := time.Now()
		response, err := nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: p, Container: c})
		b.observe("CreateContainer", began)
		if err != nil {
			return err
		}
		b.apply(ctx, response.GetUpdate())
		adjust = response.GetAdjust()
		return nil
	})
	return adjust, err
}

func (b *bridge) postCreateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		defer b.observe("PostCreateContainer", time.Now())
		return nri.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) startContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		defer b.set(c.GetId(), running)
		defer b.observe("StartContainer", time.Now())
		return nri.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) postStartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		defer b.observe("PostStartContainer", time.Now())
		return nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: p, Container: c})
	})
}

// updateContainer returns the resources to set instead of the requested ones, or nil if no plugin changed them.
func (b *bridge) updateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, requested *api.LinuxResources) (set *api.LinuxResources, err error) {
	err = b.relay(func(nri *adaptation.Adaptation) error {
		began := time.Now()
		response, err := nri.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: p, Container: c, LinuxResources: requested})
		b.observe("UpdateContainer", began)
		if err != nil {
			return err
		}

		updates := response.GetUpdate()
		if len(updates) == 0 {
			return nil
		}

		last := len(updates) - 1 // the last update is for the container itself
		b.apply(ctx, updates[:last])
		set = updates[last].GetLinux().GetResources()
		return nil
	})

	return set, err
}

func (b *bridge) postUpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		defer b.observe("PostUpdateContainer", time.Now())
		return nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) stopContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error { return b.stopOnce(ctx, nri, p, c) })
}

func (b *bridge) stopOnce(ctx context.Context, nri *adaptation.Adaptation, p *api.PodSandbox, c *api.Container) error {
	if !b.needsStop(c.GetId()) {
		return nil
	}
	defer b.set(c.GetId(), stopped)
	began := time.Now()
	response, err := nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c})
	b.observe("StopContainer", began)
	if err != nil {
		return err
	}
	b.apply(ctx, response.GetUpdate())
	return nil
}

func (b *bridge) removeContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.relay(func(nri *adaptation.Adaptation) error {
		if b.state[c.GetId()] == removed {
			return nil
		}
		defer b.set(c.GetId(), removed)
		_ = b.stopOnce(ctx, nri, p, c) // as in containerd, the answer is ignored
		defer b.observe("RemoveContainer", time.Now())
		return nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c})
	})
}
