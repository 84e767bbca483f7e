// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeobject publishes what the node has as the NodeQOSResources object of the node.
package nodeobject

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// How often the object is written: the first change after quiet waits for those that come with it, and then there is a pause. It is a
// longer one when nothing but who holds which class has changed: that changes with every container of the node.
const (
	gather          = time.Second
	interval        = 5 * time.Second
	holdersInterval = 30 * time.Second
)

// Feed has the latest state of the plugin; nodecache.Cache is one.
type Feed interface {
	// Get returns the state, and a channel that is closed when there is another.
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options say what a Publisher publishes for.
type Options struct {
	// NodeName is the name of the Node and so of the object.
	NodeName string
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Publisher keeps the node's object in the API as the plugin's state is. It writes when the two differ, and at no other time.
type Publisher struct {
	feed    Feed
	node    string
	objects dynamic.ResourceInterface
	nodes   corev1client.NodesGetter
	writes  *kubeapi.Writes
	log     *slog.Logger

	mirror mirror
	loop   *kubeapi.Loop
	now    func() time.Time

	// Only the loop's work has these.
	owner   owner       // the Node, as far as it was looked at
	applied applied     // what was written last
	later   *time.Timer // triggers the loop when holders may be written again
}

// New makes a publisher. It does no I/O and starts nothing.
func New(feed Feed, objects dynamic.Interface, nodes corev1client.NodesGetter, options Options) *Publisher {
	p := &Publisher{
		feed: feed, node: options.NodeName, nodes: nodes, now: time.Now,
		objects: objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)),
		writes:  kubeapi.NewWrites(options.Registry), log: options.Log,
	}
	p.loop = kubeapi.NewLoop(kubeapi.LoopOptions{
		What: "write NodeQOSResources " + options.NodeName, Work: p.sync, Gather: gather, Interval: interval, Log: options.Log,
	})
	return p
}

// Run publishes until ctx ends. Whatever the API server does, it keeps trying.
func (p *Publisher) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer p.postpone(0)
		return p.loop.Run(ctx)
	})
	group.Go(func() error { return p.followObject(ctx) })
	group.Go(func() error { return p.followFeed(ctx) })
	return group.Wait()
}

// followFeed triggers the loop at every change of the plugin's state, and when the plugin's time to be away is over.
func (p *Publisher) followFeed(ctx context.Context) error {
	for ctx.Err() == nil {
		state, changed := p.feed.Get()
		p.loop.Trigger()
		var over <-chan time.Time
		if left := awayGrace - p.now().Sub(state.NotReadySince); !state.Ready() && left > 0 {
			over = time.After(left)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-over:
			p.loop.Trigger()
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	}
	return nil
}
