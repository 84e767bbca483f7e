// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
)

// bridge relays events to plugins as containerd does: one at a time and under one lock. It relays the stop and the
// removal of a container or pod at most once.
type bridge struct {
	runtime *Runtime

	mu      sync.Mutex // held around all hooks, synchronization and unsolicited updates; guards what follows
	nri     *adaptation.Adaptation
	state   map[string]lifecycle
	synced  int
	changed chan struct{} // closed and replaced when `synced` changes
	clients []*ttrpc.Client
}

// lifecycle is the state of a pod or container after the last hook that was called for it. `unchanged` stands for a hook that does
// not change the state.
type lifecycle int

const (
	removed lifecycle = iota
	created
	running
	stopped
	unchanged
)

func (b *bridge) start(name, version string, options []adaptation.Option) error {
	var nri *adaptation.Adaptation
	var started atomic.Bool
	synchronize := func(ctx context.Context, relay adaptation.SyncCB) error {
		if !started.Swap(true) { // NRI calls synchronize once at start, although this runtime launches no plugins
			b.mu.Lock()
			defer b.mu.Unlock()
			b.nri = nri
			return nil
		}
		return b.synchronize(ctx, nri, relay)
	}

	options = append(options, adaptation.WithTTRPCOptions([]ttrpc.ClientOpts{b.connected}, nil))
	nri, err := adaptation.New(name, version, synchronize, b.update, options...)
	if err != nil {
		return fmt.Errorf("make the runtime side of NRI: %w", err)
	}

	if err := nri.Start(); err != nil {
		return fmt.Errorf("start the runtime side of NRI: %w", err)
	}

	return nil
}

// connected stores the connection to a plugin. The method `stop` closes it, because NRI's Adaptation.Stop leaves the
// connections to plugins open.
func (b *bridge) connected(c *ttrpc.Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients = append(b.clients, c)
}

func (b *bridge) stop() {
	b.mu.Lock()
	nri, clients := b.nri, b.clients
	b.nri, b.clients = nil, nil
	clear(b.state)
	b.mu.Unlock()
	if nri != nil {
		nri.Stop()
	}
	for _, c := range clients {
		_ = c.Close()
	}
}

// waitDisconnected waits until NRI has closed its side of all connections.
func (b *bridge) waitDisconnected(ctx context.Context) error {
	b.mu.Lock()
	clients := slices.Clone(b.clients)
	b.mu.Unlock()
	for _, c := range clients {
		if err := c.UserOnCloseWait(ctx); err != nil {
			return fmt.Errorf("wait for the end of a connection to a plugin: %w", err)
		}
	}
	return nil
}

// synchronize sends all pods and containers to a plugin, unless `nri` was stopped meanwhile.
func (b *bridge) synchronize(ctx context.Context, nri *adaptation.Adaptation, relay adaptation.SyncCB) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nri != nri {
		return ErrDown
	}

	pods, containers := b.runtime.Snapshot()
	for _, p := range pods {
		b.state[p.GetId()] = running
	}

	for _, c := range containers {
		b.state[c.GetId()] = lifecycleOf(c.GetState())
	}

	began := time.Now()
	updates, err := relay(ctx, pods, containers)
	b.observe("Synchronize", began)
	if err != nil {
		return err
	}

	b.apply(ctx, updates)
	b.synced++
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

func lifecycleOf(s api.ContainerState) lifecycle {
	if s == api.ContainerState_CONTAINER_CREATED {
		return created
	}
	return running
}

// errHangs is the answer to an unsolicited update if a real runtime of this version may hang until it is restarted.
var errHangs = errors.New("this version of the runtime may hang if a plugin requests an update")

// update handles an unsolicited update, i.e. a request that a plugin makes outside of hooks.
func (b *bridge) update(ctx context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	if b.runtime.options.CRIO || b.runtime.options.UpdatesHang {
		return nil, errHangs
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	failed := b.apply(ctx, updates)
	if len(failed) > 0 {
		return failed, fmt.Errorf("update of %d containers failed", len(failed))
	}
	return nil, nil
}

// apply applies updates, and returns the updates that failed. A hook succeeds even if its updates fail, as in
// containerd.
func (b *bridge) apply(ctx context.Context, updates []*api.ContainerUpdate) []*api.ContainerUpdate {
	var failed []*api.ContainerUpdate
	for _, u := range updates {
		err := b.runtime.updateResources(ctx, u.GetContainerId(), u.GetLinux().GetResources())
		if err == nil || u.GetIgnoreFailure() {
			continue
		}
		slog.WarnContext(ctx, "update requested by a plugin failed", "container", u.GetContainerId(), "error", err)
		failed = append(failed, u)
	}
	return failed
}

func (b *bridge) synchronizations() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.synced
}

func (b *bridge) waitSynchronized(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		nri, enough, changed := b.nri, b.synced >= n, b.changed
		b.mu.Unlock()
		if enough && nri != nil {
			nri.BlockPluginSync().Unblock() // NRI sends events to a plugin only after its synchronization has ended, so BlockPluginSync waits for the end
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for a plugin to be synchronized: %w", context.Cause(ctx))
		}
	}
}

// blockSync delays the synchronization of new plugins until the returned function is called. Otherwise, a plugin
// that is synchronized during a change would miss the change.
func (b *bridge) blockSync() (unblock func()) {
	b.mu.Lock()
	nri := b.nri
	b.mu.Unlock()
	if nri == nil {
		return func() {}
	}
	return nri.BlockPluginSync().Unblock
}

func (b *bridge) observe(call string, began time.Time) {
	b.runtime.options.Observe(call, time.Since(began))
}
