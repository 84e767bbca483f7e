// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the core of the plugin. A Node combines the state store, the hooks that the runtime calls, the
// reconciler, the claims, the meter, the history, and the guard of calls into the kernel. It knows the resources of this machine, the
// containers and pods, and their classes.
package node

import (
	"log/slog"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/admission"
	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/claims"
	"github.com/qos-nri/qos-nri-plugin/internal/node/held"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Options are the dependencies of a Node.
type Options struct {
	Kinds []classes.Kind
	// Changes stores classes that were changed after the creation of a container or pod, so that they survive a restart. If
	// Changes is nil, a restart of the plugin loses these classes.
	Changes state.Changes
	Log     *slog.Logger
	// Now returns the time. If it is nil, time.Now is called instead.
	Now func() time.Time
	// StartTime returns the start time of a process. If it is nil, the start times are unknown.
	StartTime reconcile.StartTime
	// HasCgroup reports whether a container or pod has a cgroup. If it is nil, each of them is assumed to have a cgroup.
	HasCgroup reconcile.HasCgroup
	// Kill ends all processes of a container. If it is nil, the node ends no process.
	Kill admission.Kill
	// HeldInterval is the interval at which the node compares the promises of classes with the measured values. 0 means
	// never.
	HeldInterval time.Duration
	// HistoryInterval is the interval at which the node records the use and the waiting of containers, for `kubectl qos
	// blame` and `recommend`. 0 means never. Counters reads these values. If it is nil, the node records nothing.
	HistoryInterval time.Duration
	Counters        *history.Counters
}

// Node is the core of the plugin. It is safe for concurrent use.
type Node struct {
	*state.Store
	*kernel.Guard
	*admission.Hooks
	*reconcile.Reconciler
	*usage.Meter
	*claims.Follower
	*held.Watch
	*history.Recorder
	*blame.Blamer
	*recommend.Recommender
}

// New returns a node that offers no classes yet.
func New(o Options) *Node {
	if o.Changes == nil {
		o.Changes = state.NoChanges()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	store := state.New(o.Changes, o.Now)
	guard := kernel.New(o.Now, store.Notify)
	meter := usage.New(&store.View, guard, o.Now)
	reconciler := reconcile.New(store, guard, reconcile.Options{
		Kinds: o.Kinds, Changes: o.Changes, StartTime: o.StartTime, HasCgroup: o.HasCgroup, Before: meter.Before, Now: o.Now, Log: o.Log,
	})
	recorder := history.New(&store.View, meter, guard, o.Counters, o.HistoryInterval, o.Now)
	return &Node{
		Store: store, Guard: guard, Hooks: admission.New(store, o.Changes, guard, o.Kill, meter), Reconciler: reconciler, Meter: meter,
		Follower: claims.New(reconciler, o.Kinds, state.MemoryOf(o.Changes), o.Log), Watch: held.New(store, meter, o.HeldInterval),
		Recorder: recorder, Blamer: blame.New(&store.View, recorder, o.Now), Recommender: recommend.New(&store.View, recorder),
	}
}
