// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconcile keeps the machine as the live configuration says, and all that runs in its desired classes.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Runtime is what the container runtime can do for a change of what runs.
type Runtime interface {
	// SetUnified sets cgroup v2 files of a container, and the runtime stores them.
	SetUnified(ctx context.Context, id string, unified map[string]string) error
}

// StartTime returns when a process of the host was started, in any unit, and whether there is one.
type StartTime func(pid int) (at uint64, exists bool)

// Reconciler is safe for concurrent use.
type Reconciler struct {
	store     *state.Store
	kinds     map[string]classes.Kind
	changes   state.Changes
	startTime StartTime
	log       *slog.Logger

	runtime atomic.Pointer[Runtime]

	// round serializes what changes the kernel outside of hooks. It is held while the runtime and the kernel are waited for; no hook
	// takes it.
	round *semaphore.Weighted
	// runtimeErr is why the runtime is not asked again in this round. It is guarded by round.
	runtimeErr error
	// threadErrs are the last errors of moving threads, by resource and class, to log each once. It is guarded by round.
	threadErrs map[string]string
}

// New returns a reconciler. A nil startTime is unknown.
func New(store *state.Store, kinds []classes.Kind, changes state.Changes, startTime StartTime, log *slog.Logger) *Reconciler {
	byField := map[string]classes.Kind{}
	for _, kind := range kinds {
		byField[kind.Field] = kind
	}
	return &Reconciler{
		store: store, kinds: byField, changes: changes, startTime: startTime, log: log,
		round: semaphore.NewWeighted(1), threadErrs: map[string]string{},
	}
}

// acquire begins a round; the error is that of ctx. The caller releases it.
func (r *Reconciler) acquire(ctx context.Context) error {
	if err := r.round.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	r.runtimeErr = nil
	return nil
}

func (r *Reconciler) release() { r.round.Release(1) }

// Connected records the runtime that the plugin registered with, before Synchronize.
func (r *Reconciler) Connected(runtime Runtime, info state.RuntimeInfo) {
	r.runtime.Store(&runtime)
	r.store.Connect(info)
}

// Disconnected records that the runtime is away. Assignments stay as they are.
func (r *Reconciler) Disconnected() {
	r.runtime.Store(nil)
	r.store.Disconnect()
}

// Synchronize rebuilds the state from what exists on the node. What is not in its class yet is left to Reconcile.
func (r *Reconciler) Synchronize(pods []classes.Holder, containers []state.Existing) {
	r.logFailed(r.store.Rebuild(pods, containers))
}

func (r *Reconciler) logFailed(failed []state.Adoption) {
	for _, f := range failed {
		r.log.Warn("running without the requested classes, in the default ones; it is retried", "holder", f.String(), "error", f.Err)
	}
}
