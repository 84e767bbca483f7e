// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconcile applies the live configuration to the machine, and keeps containers and pods in their desired classes.
package reconcile

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Runtime changes running containers through the container runtime.
type Runtime interface {
	// SetUnified sets values in cgroup v2 files of a container, and the runtime stores these values. If ctx ends before the
	// runtime has answered, the error is state.ErrUnanswered, or state.ErrRuntimeBusy if the runtime did not get the request.
	SetUnified(ctx context.Context, id string, unified map[string]string) error
}

// StartTime returns when a process of the host was started, and whether the process exists. The unit of the time does
// not matter, because times are only compared.
type StartTime func(pid int) (at uint64, exists bool)

// HasCgroup reports whether a container or pod has a cgroup.
type HasCgroup func(classes.Holder) bool

// BeforeMove is called before a holder leaves a class of a resource. The parameter `from` is the name of this class.
// BeforeMove is also called when a holder has ended.
type BeforeMove func(ctx context.Context, h classes.Holder, resource, from string)

// Reconciler applies configurations and enforces desired classes. It is safe for concurrent use.
type Reconciler struct {
	*configurer
	observer  observer
	hasCgroup HasCgroup

	// threadErrs maps each resource and class to the last error of moving the threads of this class, so that the
	// reconciler logs each error once. The semaphore guards this map.
	threadErrs map[string]string
}

// configurer makes class files live: it applies them to the backends, and offers them in the store.
type configurer struct {
	*enforcer
	kinds map[string]classes.Kind
	// files are the live class files. `claims` is the live resource of claims, or nil if there is none. The semaphore guards both
	// fields.
	files  classes.FileSet
	claims *classes.ResourceConfig
}

// enforcer makes the changes of the machine outside of hooks. It calls the backends and the runtime, and limits how long it waits for them.
type enforcer struct {
	store   *state.Store
	guard   *kernel.Guard
	changes state.Changes
	before  BeforeMove
	now     func() time.Time
	log     *slog.Logger
	runtime atomic.Pointer[Runtime]

	// round is a semaphore that serializes changes of the kernel's state outside of hooks. A round lasts from acquire
	// to release, including the time in which the reconciler waits for the runtime and the kernel. Hooks do not acquire
	// the semaphore, so they do not wait for the reconciler.
	round *semaphore.Weighted
	// worker makes the calls into the kernel of this round. The semaphore guards it.
	worker kernel.Worker
	// runtimeErr is the error after which no more calls to the runtime are made in this round. The semaphore guards it.
	runtimeErr error
	// patience limits the time of each call to the runtime in this round. The semaphore guards it.
	patience time.Duration
}

// Options are the dependencies of a Reconciler.
type Options struct {
	Kinds   []classes.Kind
	Changes state.Changes
	// StartTime may be nil. The start times of processes are then unknown.
	StartTime StartTime
	// HasCgroup may be nil. Every container is then assumed to have a cgroup.
	HasCgroup HasCgroup
	Before    BeforeMove
	Now       func() time.Time
	Log       *slog.Logger
}

// New returns a reconciler.
func New(store *state.Store, guard *kernel.Guard, o Options) *Reconciler {
	byField := map[string]classes.Kind{}
	for _, kind := range o.Kinds {
		byField[kind.Field] = kind
	}
	e := &enforcer{
		store: store, guard: guard, changes: o.Changes, before: o.Before, now: o.Now, log: o.Log, round: semaphore.NewWeighted(1),
	}
	return &Reconciler{
		configurer: &configurer{kinds: byField, enforcer: e}, observer: observer{e, o.StartTime},
		hasCgroup: o.HasCgroup, threadErrs: map[string]string{},
	}
}

// acquire begins a round. It returns an error only if ctx ends first. The caller must end the round with release.
func (f *enforcer) acquire(ctx context.Context) error {
	if err := f.round.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	f.runtimeErr, f.patience = nil, roundTime
	return nil
}

func (f *enforcer) release() {
	f.worker.End()
	f.round.Release(1)
}

// Connected records the runtime with which the plugin has registered. It must be called before Synchronize.
func (r *Reconciler) Connected(runtime Runtime, info state.RuntimeInfo) {
	r.runtime.Store(&runtime)
	r.store.UpdateRuntime(func(r *state.RuntimeInfo) {
		info.Since, info.SyncFailure = r.Since, r.SyncFailure
		info.ReportsPIDs = r.ReportsPIDs && info.Name == r.Name && info.Version == r.Version
		*r = info
	})
}

// Disconnected records that the plugin is not connected to the runtime. All assignments stay as they are.
func (r *Reconciler) Disconnected() {
	r.runtime.Store(nil)
	r.store.UpdateRuntime(func(r *state.RuntimeInfo) { r.Synchronized = false })
}

// Synchronize rebuilds the state from the containers and pods that exist on the node. It moves no container or pod; a
// later Reconcile moves those that are not in their class.
func (r *Reconciler) Synchronize(pods []classes.Holder, containers []state.Existing) {
	r.logFailed(r.store.Rebuild(pods, containers))
}

func (r *Reconciler) logFailed(failed []state.FailedAdoption) {
	for _, f := range failed {
		r.log.Warn("a container or pod runs in the default classes instead of the requested ones; retrying", "holder", f.String(), "error", f.Err)
	}
}
