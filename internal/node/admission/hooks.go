// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission implements the hooks of the runtime: they give containers and pods their classes, or refuse them.
package admission

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Hooks is safe for concurrent use. It does no I/O while it holds a lock.
type Hooks struct {
	store *state.Store
	// waiting counts enforcements that the kernel has not answered yet.
	waiting atomic.Int64
}

// New returns the hooks of a node.
func New(store *state.Store) *Hooks { return &Hooks{store: store} }

// CreateContainer gives a container that is about to be created its classes, and returns what the runtime must set for them. On error
// nothing is assigned. It works in memory only.
func (h *Hooks) CreateContainer(container classes.Holder) (classes.Adjustment, []classes.Assignment, error) {
	return h.store.Admit(container)
}

// StartContainer records the process of a container that is about to start. enforce, if not nil, enforces and verifies its
// classes; on error the container must not be started. A container that was created while the plugin was away was created without
// classes. If it requests one it is refused, and the kubelet creates a new container.
func (h *Hooks) StartContainer(container classes.Holder) (enforce func(context.Context) error, err error) {
	e, err := h.store.Start(container)
	if err != nil {
		return nil, err
	}
	return h.enforcement(e), nil
}

// RunPod gives a pod that is about to run its pod-scope classes. enforce, if not nil, enforces them on the pod's cgroup; on error
// the pod must not run.
func (h *Hooks) RunPod(pod classes.Holder) (enforce func(context.Context) error, err error) {
	e, err := h.store.AdmitPod(pod)
	if err != nil {
		return nil, err
	}
	return h.enforcement(e), nil
}

// Stop frees the slots of a container or pod sandbox that has stopped or is removed. It may be called any number of times, and for
// unknown IDs.
func (h *Hooks) Stop(id string) { h.store.Release(id) }

func (h *Hooks) enforcement(e state.Entry) func(context.Context) error {
	steps := reconcile.Enforcement(e)
	if len(steps) == 0 {
		return nil
	}
	return func(ctx context.Context) error { return h.store.Finish(e, h.enforce(ctx, e.Holder, steps)) }
}

// maxWaiting bounds the threads of this process that are blocked in the kernel.
const maxWaiting = 100

var errKernelHangs = errors.New("the kernel does not answer for many other containers; look for blocked tasks in the kernel log")

// enforce returns when ctx ends, even if the kernel has not answered. A blocked system call cannot be interrupted: it outlives
// the hook, and the process does not wait for it at its end. It changes only objects that the runtime is about to remove.
func (h *Hooks) enforce(ctx context.Context, holder classes.Holder, steps []reconcile.Step) error {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		return errKernelHangs
	}

	done := make(chan error, 1)
	go func() {
		defer h.waiting.Add(-1)
		done <- reconcile.Enforce(ctx, h.store, holder, steps)
	}()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both are ready
		return err
	default:
		return fmt.Errorf("enforcing its classes: %w", context.Cause(ctx))
	}
}
