// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// call calls a hook under the lock.
func (b *bridge) call(hook, id string, after lifecycle, do func(*adaptation.Adaptation) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nri == nil {
		return ErrDown
	}
	return b.callLocked(hook, id, after, do)
}

// callLocked calls a hook of a pod or container, and then sets its lifecycle to `after`, even if a plugin has returned an error. It
// calls the hooks for the stop and for the removal only once.
func (b *bridge) callLocked(hook, id string, after lifecycle, do func(*adaptation.Adaptation) error) error {
	before := b.state[id]
	if after == removed && before == removed || after == stopped && (before == stopped || before == removed) {
		return nil
	}

	began := time.Now()
	err := do(b.nri)
	b.observe(hook, began)
	switch after {
	case unchanged:
	case removed:
		delete(b.state, id)
	default:
		b.state[id] = after
	}
	return err
}

func (b *bridge) runPod(ctx context.Context, p *api.PodSandbox) error {
	return b.call("RunPodSandbox", p.GetId(), running, func(nri *adaptation.Adaptation) error {
		return nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: p})
	})
}

func (b *bridge) stopPod(ctx context.Context, p *api.PodSandbox) error {
	return b.call("StopPodSandbox", p.GetId(), stopped, func(nri *adaptation.Adaptation) error {
		return nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p})
	})
}

func (b *bridge) removePod(ctx context.Context, p *api.PodSandbox) error {
	return b.call("RemovePodSandbox", p.GetId(), removed, func(nri *adaptation.Adaptation) error {
		return nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p})
	})
}

func (b *bridge) createContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) (adjust *api.ContainerAdjustment, err error) {
	err = b.call("CreateContainer", c.GetId(), created, func(nri *adaptation.Adaptation) error {
		response, err := nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: p, Container: c})
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
	return b.call("PostCreateContainer", c.GetId(), unchanged, func(nri *adaptation.Adaptation) error {
		return nri.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) startContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.call("StartContainer", c.GetId(), running, func(nri *adaptation.Adaptation) error {
		return nri.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) postStartContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.call("PostStartContainer", c.GetId(), unchanged, func(nri *adaptation.Adaptation) error {
		return nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: p, Container: c})
	})
}

// updateContainer returns the resources to set instead of the requested ones, or nil if no plugin changed them.
func (b *bridge) updateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container, requested *api.LinuxResources) (set *api.LinuxResources, err error) {
	err = b.call("UpdateContainer", c.GetId(), unchanged, func(nri *adaptation.Adaptation) error {
		response, err := nri.UpdateContainer(ctx, &api.UpdateContainerRequest{Pod: p, Container: c, LinuxResources: requested})
		if err != nil || len(response.GetUpdate()) == 0 {
			return err
		}

		last := len(response.GetUpdate()) - 1 // the last update is for the container itself
		b.apply(ctx, response.GetUpdate()[:last])
		set = response.GetUpdate()[last].GetLinux().GetResources()
		return nil
	})
	return set, err
}

func (b *bridge) postUpdateContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.call("PostUpdateContainer", c.GetId(), unchanged, func(nri *adaptation.Adaptation) error {
		return nri.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: p, Container: c})
	})
}

func (b *bridge) stopContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.call("StopContainer", c.GetId(), stopped, b.stopping(ctx, p, c))
}

// stopping returns the call of the hook StopContainer.
func (b *bridge) stopping(ctx context.Context, p *api.PodSandbox, c *api.Container) func(*adaptation.Adaptation) error {
	return func(nri *adaptation.Adaptation) error {
		response, err := nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c})
		if err == nil {
			b.apply(ctx, response.GetUpdate())
		}
		return err
	}
}

// removeContainer calls the hook StopContainer before RemoveContainer, under the same lock.
func (b *bridge) removeContainer(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	return b.call("RemoveContainer", c.GetId(), removed, func(nri *adaptation.Adaptation) error {
		_ = b.callLocked("StopContainer", c.GetId(), stopped, b.stopping(ctx, p, c)) // as in containerd, the answer is ignored
		return nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c})
	})
}
