// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// monitors returns the available resources that can monitor containers.
func monitors(store *state.Store) map[string]classes.Monitor {
	found := map[string]classes.Monitor{}
	for name, resource := range store.Live().Resources {
		if monitor, ok := resource.Backend.(classes.Monitor); ok && resource.Unavailable == nil {
			found[name] = monitor
		}
	}
	return found
}

// Monitored reports whether a container is to be monitored.
func Monitored(store *state.Store, e state.Holding) bool {
	for name, monitor := range monitors(store) {
		if monitor.Monitors(e.Class(name)) {
			return true
		}
	}
	return false
}

// Monitor creates the monitoring groups of a container that has its classes and is about to start. Monitor reports no
// errors, and waits for the kernel no longer than kernel.Briefly waits.
func Monitor(ctx context.Context, store *state.Store, guard *kernel.Guard, e state.Holding) {
	for name, monitor := range monitors(store) {
		briefly(ctx, guard, kernel.Call{Resource: "monitoring of " + name}, func(ctx context.Context) {
			monitor.Monitor(ctx, e.Holder, e.Class(name))
		})
	}
}

// Unmonitor ends the monitoring of a container that has ended, if the container is monitored. Unmonitor waits for the
// kernel no longer than kernel.Briefly waits.
func Unmonitor(store *state.Store, guard *kernel.Guard, id string) {
	for name, monitor := range monitors(store) {
		if monitor.Tracks(id) {
			call := kernel.Call{Resource: "monitoring of " + name, HolderID: id}
			briefly(context.Background(), guard, call, func(context.Context) { monitor.Unmonitor(id) })
		}
	}
}

// briefly makes a call into the kernel, and waits for the call no longer than kernel.Briefly waits. The error is ignored, because
// the next run of the reconciler tries again.
func briefly(ctx context.Context, guard *kernel.Guard, call kernel.Call, do func(context.Context)) {
	kernel.Briefly(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTime)
		defer cancel()
		_, _ = kernel.Await(ctx, guard, call, func() string { return call.Resource }, func() (struct{}, error) {
			do(ctx)
			return struct{}{}, nil
		})
	})
}

// monitor brings the monitoring of all running containers into the state that the configuration defines.
func (r *Reconciler) monitor(ctx context.Context) {
	running := inOrder(r.store.Where(func(h *state.Holding) bool { return h.Phase.Reconciled() && h.Scope() == classes.ContainerScope }))

	for name, monitor := range monitors(r.store) {
		call := kernel.Call{Resource: "monitoring of " + name}
		_, _ = await(ctx, r.enforcer, changeTime, call, func() string { return call.Resource }, func(ctx context.Context) (struct{}, error) {
			for _, id := range monitor.Monitored() {
				if _, exists := r.store.Get(id); !exists && !r.store.Runtime().Since.IsZero() { // the runtime has reported its containers
					monitor.Unmonitor(id)
				}
			}
			monitor.MonitorAll(ctx, inClasses(running, name))
			return struct{}{}, nil
		})
	}
}

// RotateEvery returns the longest time that may pass between calls of Rotate. It is 0 if no resource monitors
// containers in turn.
func (r *Reconciler) RotateEvery() (every time.Duration) {
	for _, monitor := range monitors(r.store) {
		if rotator, ok := monitor.(classes.Rotator); ok && rotator.RotateEvery() > 0 && (every == 0 || rotator.RotateEvery() < every) {
			every = rotator.RotateEvery()
		}
	}
	return every
}

// Rotate begins the next turn of containers that are monitored in turn.
func (r *Reconciler) Rotate(ctx context.Context) {
	if r.RotateEvery() == 0 || r.acquire(ctx) != nil {
		return
	}
	defer r.release()
	r.monitor(ctx)
}

// inOrder sorts holders by the order in which the store first saw them.
func inOrder(holders []state.Holding) []state.Holding {
	slices.SortFunc(holders, func(a, b state.Holding) int { return cmp.Compare(a.Number, b.Number) })
	return holders
}

// inClasses returns holders with their observed classes of a resource.
func inClasses(entries []state.Holding, resource string) (all []classes.InClass) {
	for _, e := range entries {
		all = append(all, classes.InClass{Holder: e.Holder, Class: e.ObservedClass(resource)})
	}
	return all
}
