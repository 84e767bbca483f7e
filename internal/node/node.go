// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node is the core of the plugin: the resources of this machine, its containers and pods, and their classes. It joins the
// store of the state, the hooks of the runtime, and the reconciler.
package node

import (
	"log/slog"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/admission"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Options are the parts of a Node.
type Options struct {
	Kinds []classes.Kind
	// Changes stores classes that were changed after creation, for a restart; nil stores nothing.
	Changes state.Changes
	Log     *slog.Logger
	// Now returns the time; nil is time.Now.
	Now func() time.Time
	// StartTime may be nil.
	StartTime reconcile.StartTime
}

// Node is safe for concurrent use.
type Node struct {
	*state.Store
	*admission.Hooks
	*reconcile.Reconciler
}

// New returns a node that offers nothing yet.
func New(o Options) *Node {
	store := state.New(o.Changes, o.Now)
	return &Node{
		Store: store, Hooks: admission.New(store),
		Reconciler: reconcile.New(store, o.Kinds, store.Changes(), o.StartTime, o.Log),
	}
}
