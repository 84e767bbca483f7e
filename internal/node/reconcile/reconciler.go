// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconcile applies the live configuration to the machine, and keeps containers and pods in their desired classes.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Runtime changes running containers through the container runtime.
type Runtime interface {
	// SetUnified sets cgroup v2 files of a container, and the runtime stores them.
	SetUnified(ctx context.Context, id string, unified map[string]string) error
}

// StartTime returns when a process of the host was started, in any unit, and whether the process exists.
type StartTime func(pid int) (at uint64, exists bool)

// Reconciler is safe for concurrent use.
type Reconciler struct {
	store     *state.Store
	kinds     map[string]classes.Kind
	changes   state.Changes
	startTime StartTime
	log       *slog.Logger

	runtime atomic.Pointer[Runtime]

	// round serializes changes of the kernel outside of hooks. It is held during waits for the runtime and the kernel; hooks do
	// not acquire it.
	round *semaphore.Weighted
	// runtimeErr is the error after which the runtime is not called again in this round. It is guarded by round.
	runtimeErr error
	// threadErrs are the last errors of moving threads, by resource and class, so that each is logged once. It is guarded by
	// round.
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

// acquire begins a round. Its error is the error of ctx. The caller releases the round.
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

// Synchronize rebuilds the state from the containers and pods on the node. Reconcile then moves those that are outside of their
// class.
func (r *Reconciler) Synchronize(pods []classes.Holder, containers []state.Existing) {
	r.logFailed(r.store.Rebuild(pods, containers))
}

func (r *Reconciler) logFailed(failed []state.Adoption) {
	for _, f := range failed {
		r.log.Warn("running without the requested classes, in the default ones; retrying", "holder", f.String(), "error", f.Err)
	}
}
