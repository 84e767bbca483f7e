// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Repair compares the machine with the live configuration and corrects drift. It first repairs the configuration that
// the backends have applied, and then moves all holders and threads to their classes. If a resource cannot be repaired,
// Repair marks the resource as unavailable until a later Repair succeeds.
//
// Repair must be called periodically, and when devices are added or removed.
func (r *Reconciler) Repair(ctx context.Context) {
	if r.acquire(ctx) != nil {
		return
	}
	defer r.release()

	for _, name := range r.store.Live().Names() {
		r.repair(ctx, name)
	}
	r.reconcileAll(ctx, func(e state.Holding, steps []Step) {
		for _, s := range steps {
			r.corrected(s.Resource, state.AssignmentDrift, 1)
			r.log.Warn("drift corrected: moved a container or pod to its class", "holder", e.String(), "resource", s.Resource, "from", s.From, "to", s.To)
		}
	})
	r.moveThreads(ctx, classes.ThreadMover.MoveThreads, func(*state.Holding, string) bool { return true })
	// A group whose last thread has just moved or ended is removed in the same pass, because an uninstall waits for only two passes.
	if err := r.releaseUnused(ctx); err != nil {
		r.log.Debug("cannot clean up removed classes; retrying", "error", err)
	}
}

func (r *Reconciler) repair(ctx context.Context, name string) {
	resource := r.store.Live().Resources[name]
	var drift classes.Drift
	var err error
	if resource.Unavailable == nil || !r.store.Live().Configured(name) {
		drift, err = await(ctx, r.enforcer, changeTime, kernel.Call{Resource: name}, func() string { return "repair " + name }, resource.Repair)
	} else {
		err = r.awaitResource(ctx, name, "apply", func(ctx context.Context) error {
			if err := resource.Check(ctx, resource.Config.Backend); err != nil {
				return err
			}
			return resource.Apply(ctx, resource.Config.Backend)
		})
	}

	switch {
	case len(drift.Found) > 0:
		r.recordDrift(name, strings.Join(drift.Found, "; "), err)
	case err == nil && resource.Drift.Uncorrected():
		r.store.UpdateResource(name, func(r *state.Resource) { r.Drift.ConfigurationInSync() })
	}
	if drift.DevicesGone {
		devicesLost(r.store, name)
	}
	r.setAvailability(name, unavailableFor(err))
}

// devicesLost marks as stale all holders for which the runtime may have stored values of a resource. These values may
// name devices that the machine lost.
func devicesLost(store *state.Store, resource string) {
	for _, h := range store.Where(func(h *state.Holding) bool { return h.MayStore(resource) }) {
		store.Modify(h.ID, stale)
	}
}

func (r *Reconciler) recordDrift(name, found string, err error) {
	if err == nil {
		r.log.Warn("drift corrected", "resource", name, "found", found)
	} else {
		r.log.Error("drift not corrected; retrying", "resource", name, "found", found, "error", err)
	}
	r.store.UpdateResource(name, func(resource *state.Resource) {
		resource.Drift.ConfigurationDrifted(found, err == nil, r.now())
	})
}

// corrected counts corrections of drift.
func (r *Reconciler) corrected(resource, kind string, count int) {
	r.store.UpdateResource(resource, func(r *state.Resource) { r.Drift.Corrected(kind, count) })
}

func (r *Reconciler) setAvailability(name string, why *classes.Unavailable) {
	before := r.store.Live().Resources[name]
	if was := before.Unavailable; was == why || was != nil && why != nil && *was == *why {
		return
	}

	r.store.UpdateResource(name, func(r *state.Resource) { r.Unavailable = why })
	if why == nil {
		r.log.Info("resource available again", "resource", name)
	} else {
		r.log.Warn("resource unavailable", "resource", name, "reason", why.Reason, "message", why.Message)
	}
}

func unavailableFor(err error) *classes.Unavailable {
	var unavailable *classes.Unavailable
	if err == nil || errors.As(err, &unavailable) {
		return unavailable
	}
	return &classes.Unavailable{Reason: "NotApplied", Message: fmt.Sprintf("the classes do not fit this machine any more: %v", err)}
}

// ThreadCheck is the result of MoveThreads.
type ThreadCheck struct {
	// Containers is the number of checked containers. Moved is the number of those that had threads to move.
	Containers, Moved int
	// Took is the CPU time of the program during the check, without the time in which the check waited for another change.
	Took time.Duration
}

// MoveThreads moves the threads of a container to the container's observed class, for each container whose class was
// changed after its creation. The runtime starts later processes of such a container, e.g. for "kubectl exec", in the
// class that the container was created in, so MoveThreads must be called periodically. If `onlyNew` is true, it does not check the
// threads that the last call found in the class of their container, which takes much less time.
func (r *Reconciler) MoveThreads(ctx context.Context, onlyNew bool) (check ThreadCheck) {
	if r.acquire(ctx) != nil {
		return check
	}
	defer r.release()

	began, do := cpuTime(), classes.ThreadMover.MoveThreads
	if onlyNew {
		do = classes.ThreadMover.MoveNewThreads
	}
	check = r.moveThreads(ctx, do, func(e *state.Holding, resource string) bool {
		return e.ObservedClass(resource) != classes.ClassOf(e.Created, resource)
	})
	check.Took = cpuTime() - began
	return check
}

// cpuTime returns the CPU time of this program since its start.
func cpuTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now) // each Linux has this clock
	return time.Duration(now.Nano())
}

// HasLeft reports whether a container has left the class that it was created in, so that later processes of the container join this class.
func (r *Reconciler) HasLeft(class string) bool {
	return len(r.store.Where(func(e *state.Holding) bool {
		return e.Phase.Started() && slices.ContainsFunc(e.Created, func(a classes.Assignment) bool {
			return a.Class == class && e.ObservedClass(a.Resource) != class
		})
	})) > 0
}

type threadGroup struct {
	mover           classes.ThreadMover
	resource, class string
}

func (r *Reconciler) moveThreads(ctx context.Context, do moveCall, selected func(e *state.Holding, resource string) bool) (check ThreadCheck) {
	for group, holders := range r.threadGroups(selected) {
		check.Containers += len(holders)
		moved, err := r.moveGroup(ctx, group, do, holders)
		if ctx.Err() == nil {
			r.logThreadError(group, err)
		}
		check.Moved += len(moved)
		if len(moved) > 0 {
			r.corrected(group.resource, state.ThreadDrift, len(moved))
		}
	}
	return check
}

// threadGroups groups the containers by resource and observed class, which is the class of the container's first
// process. So all threads of a container are moved to one class even if the container cannot get its desired class,
// e.g. because the group of that class was removed. threadGroups includes a container only if `selected` returns true for
// the container and the resource, and if the container's threads can be moved now.
func (r *Reconciler) threadGroups(selected func(e *state.Holding, resource string) bool) map[threadGroup][]classes.Holder {
	movers := movers(r.store.Live())
	if len(movers) == 0 {
		return nil
	}
	entries := r.store.Where(func(e *state.Holding) bool {
		return e.Phase.Started() && e.Container != "" &&
			slices.ContainsFunc(e.Assignments, func(a classes.Assignment) bool { return movers[a.Resource] != nil && selected(e, a.Resource) })
	})

	groups := map[threadGroup][]classes.Holder{}
	for _, e := range entries {
		for _, a := range e.Assignments {
			mover := movers[a.Resource]
			if mover != nil && selected(&e, a.Resource) && r.guard.MayCall(kernel.Call{Resource: a.Resource, HolderID: e.ID}) == nil {
				group := threadGroup{mover, a.Resource, e.ObservedClass(a.Resource)}
				groups[group] = append(groups[group], e.Holder)
			}
		}
	}
	return groups
}

// movers returns the backends that move threads, by resource. It leaves out unavailable resources.
func movers(live state.Offering) map[string]classes.ThreadMover {
	movers := map[string]classes.ThreadMover{}
	for name, resource := range live.Resources {
		if mover, ok := resource.Backend.(classes.ThreadMover); ok && resource.Unavailable == nil {
			movers[name] = mover
		}
	}
	return movers
}

func (r *Reconciler) logThreadError(group threadGroup, err error) {
	key := group.resource + "=" + group.class
	if err == nil {
		delete(r.threadErrs, key)
		return
	}

	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if text != r.threadErrs[key] {
		r.log.Warn("cannot move threads to the class of their container; retrying", "resource", group.resource, "class", group.class, "error", text)
	}
	r.threadErrs[key] = text
}
