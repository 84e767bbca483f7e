// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission implements the hooks of the container runtime. The hooks assign classes to containers and pods,
// or refuse them.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Hooks implements the hooks that the runtime calls. It is safe for concurrent use, and does no I/O while it holds a lock.
type Hooks struct {
	store   *state.Store
	changes state.Changes
	guard   *kernel.Guard
	kill    Kill
	meter   *usage.Meter
}

// Kill ends all processes of a container.
type Kill func(container classes.Holder) error

// New returns the hooks of a node.
func New(store *state.Store, changes state.Changes, guard *kernel.Guard, kill Kill, meter *usage.Meter) *Hooks {
	return &Hooks{store, changes, guard, kill, meter}
}

// CreateContainer assigns classes to a container that is about to be created. It returns what the runtime must set
// for these classes. If it returns an error, it assigns nothing. It works in memory only.
func (h *Hooks) CreateContainer(container classes.Holder) (classes.Adjustment, []classes.Assignment, error) {
	return h.store.Admit(container)
}

// UpdateContainer is called before the runtime changes a container, e.g. in a resize by the kubelet. It returns the
// cgroup v2 values that the runtime must set in the same change, so that the container's classes stay in force without
// interruption. `stored` has the settings that the runtime has stored for the container. If a backend is a Resizer,
// UpdateContainer waits for the kernel, at most until `ctx` ends. It returns an error if a Resizer fails, or if the
// originals of the container (classes.Spec) cannot be saved. The values are valid even then.
func (h *Hooks) UpdateContainer(
	ctx context.Context, id string, requested classes.Spec, stored classes.Adjustment,
) (values classes.Adjustment, err error) {
	values, resized := h.store.Resize(id, requested, stored)
	if len(values) == 0 {
		return nil, nil
	}

	err = reconcile.SaveOriginals(h.store, h.changes, id)
	e, _ := h.store.Get(id)
	for _, a := range e.Assignments {
		resource := h.store.Live().Resources[a.Resource]
		resizer, ok := resource.Backend.(classes.Resizer)
		if !ok || a.Class == classes.SystemDefault {
			continue
		}
		call := kernel.Call{Resource: a.Resource, HolderID: id}
		what := func() string { return "prepare the resize of " + e.String() }
		_, failed := kernel.Await(ctx, h.guard, call, what, func() (struct{}, error) {
			return struct{}{}, resizer.BeforeResize(ctx, resized, a.Class)
		})
		err = errors.Join(err, failed)
	}
	return values, err
}

// ContainerUpdated is called after the runtime has changed a container. It is not called for a change that the runtime
// has refused. If UpdateContainer has saved the originals, ContainerUpdated saves those that the change has replaced.
// It returns an error if they cannot be saved.
func (h *Hooks) ContainerUpdated(id string) error {
	h.store.Modify(id, (*state.Holding).Resized)
	if _, saved := h.changes.Originals(id); !saved {
		return nil
	}
	return reconcile.SaveOriginals(h.store, h.changes, id)
}

// StartContainer records the process of a container that is about to start. It returns the function `enforce`, which
// enforces and verifies the container's classes. The caller must call `enforce` unless it is nil. If StartContainer or
// `enforce` returns an error, the caller must not start the container, and must call Kill while the runtime still waits
// for the hook.
//
// A container that was created while the plugin was not connected has no classes. StartContainer then admits it to the
// classes that it requests.
func (h *Hooks) StartContainer(container classes.Holder) (enforce func(context.Context) error, err error) {
	e, volumes, err := h.store.Start(container)
	if err != nil {
		return nil, err
	}
	h.meter.Started(e)
	return h.monitoring(e, h.enforcement(append(volumes, e)...)), nil
}

// Kill ends a container whose start was refused, before the container executes its first instruction. Without Kill,
// some runtimes would start the container, e.g. CRI-O, which ignores the error of the hook. Kill returns when ctx ends,
// even if the kernel has not answered. If ctx has ended already, Kill ends nothing, because the runtime may have
// started the container. Kill must be called even then, so that the reconciler enforces the classes of a container that
// continues to run.
func (h *Hooks) Kill(ctx context.Context, container classes.Holder) error {
	defer h.store.StartRefused(container.ID)
	if h.kill == nil || ctx.Err() != nil {
		return nil
	}
	call := kernel.Call{Resource: "cgroup.kill", HolderID: container.ID}
	what := func() string { return "end the processes of " + container.String() }
	_, err := kernel.Await(ctx, h.guard, call, what, func() (struct{}, error) {
		return struct{}{}, h.kill(container)
	})
	return err
}

// RunPod assigns pod-scope classes to a pod that is about to run. It returns the function `enforce`, which enforces
// these classes on the pod's cgroup. The caller must call `enforce` unless it is nil. If RunPod or `enforce` returns an
// error, the caller must not run the pod.
func (h *Hooks) RunPod(pod classes.Holder) (enforce func(context.Context) error, err error) {
	e, err := h.store.AdmitPod(pod)
	if err != nil {
		return nil, err
	}
	return h.enforcement(e), nil
}

// Stop frees the slots of a container that has stopped or is removed. It may be called several times for the same ID,
// and for unknown IDs. It first reads what the container has used, and then ends its monitoring. Each of these two
// steps waits at most 0.2 s for the kernel.
func (h *Hooks) Stop(id string) {
	h.meter.Last(id)
	h.store.Release(id)
	reconcile.Unmonitor(h.store, h.guard, id)
}

// StopPod frees the slots of a pod sandbox that has stopped or is removed, and of its containers. It may be called
// several times for the same ID, and for unknown IDs. Like Stop, it first reads what the pod has used. Unlike Stop, it
// does not end the monitoring of containers. The reconciler does so for containers whose end the runtime did not report.
func (h *Hooks) StopPod(sandboxID string) {
	h.meter.Last(sandboxID)
	h.store.ReleasePod(sandboxID)
}

// enforcement returns the function that enforces the classes of holders. The function records all errors, and returns
// the first one. enforcement returns nil if there is nothing to enforce.
//
// The classes of claims are enforced last, and their errors are not returned, because a claim must not keep a container from starting.
func (h *Hooks) enforcement(entries ...state.Holding) func(context.Context) error {
	entries = slices.DeleteFunc(entries, func(e state.Holding) bool {
		steps, ofClaims := reconcile.Enforcement(e)
		return len(steps)+len(ofClaims) == 0
	})
	if len(entries) == 0 {
		return nil
	}

	return func(ctx context.Context) (first error) {
		errs := make([]error, len(entries))
		for i, e := range entries {
			steps, _ := reconcile.Enforcement(e)
			errs[i] = h.enforce(ctx, e.Holder, steps)
		}
		for i, e := range entries {
			_, ofClaims := reconcile.Enforcement(e)
			if err := h.enforce(ctx, e.Holder, ofClaims); errs[i] == nil && err != nil {
				errs[i] = state.ClaimError{Err: err}
			}
			if err := h.store.Finish(e, errs[i]); first == nil {
				first = err
			}
		}
		return first
	}
}

// monitoring returns a function that calls `enforce`, unless it is nil, and then begins to monitor the container. If
// the container is not to be monitored, monitoring returns `enforce` itself.
func (h *Hooks) monitoring(e state.Holding, enforce func(context.Context) error) func(context.Context) error {
	if !reconcile.Monitored(h.store, e) {
		return enforce
	}
	return func(ctx context.Context) error {
		if enforce != nil {
			if err := enforce(ctx); err != nil {
				return err
			}
		}
		reconcile.Monitor(ctx, h.store, h.guard, e)
		return nil
	}
}

// enforce carries out the steps of a hook. It returns when ctx ends, even if the kernel has not answered. The hook then
// fails, and the container or sandbox ends. A system call that returns later does not affect other containers. If such
// a call leaves limits of a volume in the pod's cgroup, Repair removes these limits.
func (h *Hooks) enforce(ctx context.Context, holder classes.Holder, steps []reconcile.Step) error {
	if len(steps) == 0 {
		return nil
	}
	call := kernel.Call{HolderID: holder.ID}
	what := func() string { return "enforce the classes of " + holder.String() }
	_, err := kernel.Await(ctx, h.guard, call, what, func() (struct{}, error) {
		return struct{}{}, reconcile.Enforce(ctx, h.store, holder, steps)
	})
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("enforce the classes: %w", err)
	}
	return err
}
