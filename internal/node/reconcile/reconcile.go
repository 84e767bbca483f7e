// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"io/fs"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Reconcile brings all running holders into their desired classes. Defaults follow the configuration, and pending requests are
// retried. If the kernel shows another class, the desired one is enforced. It must be called after Synchronize and Configure,
// outside of hooks. A holder that fails keeps its slot, is reported in the observed class, and is retried by the next Repair. It
// returns the number of moved holders.
func (r *Reconciler) Reconcile(ctx context.Context) (moved int) {
	if r.acquire(ctx) != nil {
		return 0
	}
	defer r.release()

	r.reconcileAll(ctx, func(state.Entry, []Step) { moved++ })
	return moved
}

func (r *Reconciler) reconcileAll(ctx context.Context, moved func(state.Entry, []Step)) {
	r.verifyPods(ctx)
	for _, id := range r.store.Started() {
		if ctx.Err() != nil {
			return
		}
		r.store.Refresh(id)
		r.reconcile(ctx, id, moved)
	}

	if r.runtimeErr != nil && ctx.Err() == nil {
		r.log.Warn("the runtime does not update containers; retrying", "error", r.runtimeErr)
	}
}

// reconcile compares the desired with the observed classes of one holder, and makes the steps between them.
func (r *Reconciler) reconcile(ctx context.Context, id string, moved func(state.Entry, []Step)) {
	e, known := r.store.Get(id)
	if !known {
		return
	}
	r.restoreStored(ctx, e)

	observed, err := r.observe(ctx, e)
	if r.hasEnded(e, err) {
		r.log.Debug("ended, but the runtime has not reported it", "holder", e.String())
		r.store.Release(id)
		return
	}

	steps := r.plan(e, observed)
	if len(steps) == 0 {
		return
	}
	if err := r.make(ctx, e.Holder, steps); err != nil {
		r.logFailure(e, steps, err)
		r.observeSteps(ctx, e, steps)
		return
	}
	for _, s := range steps {
		r.store.Observe(id, s.Resource, s.To)
	}
	moved(e, steps)
}

// observation is the class of one resource that the kernel shows for a holder.
type observation struct {
	assigned classes.Assignment
	class    string
	// known is false when the kernel does not show the class.
	known       bool
	unavailable bool
	// draining classes accept no new assignments.
	draining bool
}

// observe reads the class of each resource from the kernel. After an error it continues with the others.
func (r *Reconciler) observe(ctx context.Context, e state.Entry) (observed []observation, err error) {
	for _, a := range e.Assignments {
		resource, there := r.store.Resource(a.Resource)
		if !there {
			continue // nothing can enforce it
		}

		class, known, observeErr := resource.Observe(ctx, e.Holder, a.Class)
		if observeErr != nil {
			err = errors.Join(err, observeErr)
			continue
		}
		draining := a.Class != classes.SystemDefault && !r.store.Offered(a)
		observed = append(observed, observation{a, class, known, resource.Unavailable != nil, draining})
	}
	return observed, err
}

// plan returns the steps from the observed to the desired classes, and records the other observed classes.
func (r *Reconciler) plan(e state.Entry, observed []observation) (steps []Step) {
	for _, o := range observed {
		step, needed := o.step(e)
		switch {
		case needed:
			steps = append(steps, step)
		case o.known:
			r.store.Observe(e.ID, o.assigned.Resource, o.class)
		}
	}
	return steps
}

// step returns the step that a resource of a holder needs. If the kernel does not show the class, the holder counts as in its
// class, unless another class was observed before.
func (o observation) step(e state.Entry) (s Step, needed bool) {
	want := o.assigned.Class
	s = Step{Resource: o.assigned.Resource, From: want, To: want}
	recorded, elsewhere := e.Observed[s.Resource]

	switch {
	case o.known && o.class == want, o.unavailable:
		return Step{}, false
	case o.known && o.draining:
		return s, true // it cannot leave another class for one that takes nothing new, so it is enforced again
	case o.known:
		s.From = o.class
		return s, true
	case elsewhere:
		s.From = recorded
		return s, true
	}
	return s, want != classes.SystemDefault && !o.draining
}

func (r *Reconciler) observeSteps(ctx context.Context, e state.Entry, steps []Step) {
	ctx = context.WithoutCancel(ctx)
	for _, s := range steps {
		class := s.From
		if s.From == s.To {
			class = classes.SystemDefault // all of the class may be missing
		}
		if backend, err := backendOf(r.store, s.Resource); err == nil {
			if shown, known, err := backend.Observe(ctx, e.Holder, s.To); err == nil && known {
				class = shown
			}
		}
		r.store.Observe(e.ID, s.Resource, class)
	}
}

// hasEnded reports whether a holder has ended, even if another process has its PID now.
func (r *Reconciler) hasEnded(e state.Entry, observeErr error) bool {
	if errors.Is(observeErr, classes.ErrEnded) || errors.Is(observeErr, fs.ErrNotExist) && e.Container == "" {
		return true
	}
	if r.startTime == nil || e.PID <= 0 || e.Container == "" {
		return false
	}
	at, exists := r.startTime(e.PID)
	return !exists || r.store.SetStartTime(e.ID, at)
}

// logFailure warns when a holder is first found outside of its class.
func (r *Reconciler) logFailure(e state.Entry, steps []Step, err error) {
	log := r.log.Debug
	for _, s := range steps {
		if _, before := e.Observed[s.Resource]; !before {
			log = r.log.Warn
		}
	}
	log("cannot be moved to its class; retrying", "holder", e.String(), "error", err)
}

// restoreStored replaces values that the runtime has stored and that differ from the desired classes.
func (r *Reconciler) restoreStored(ctx context.Context, e state.Entry) {
	if !e.Stale {
		return
	}

	unified, err := r.unified(storedSteps(e))
	if err == nil {
		err = r.updateRuntime(ctx, e.Holder, unified)
	}
	switch {
	case err == nil:
		r.store.SetStored(e.ID, false)
	case r.runtimeErr == nil: // the runtime answers
		r.log.Debug("the runtime still stores values of another class; retrying", "holder", e.String(), "error", err)
	}
}

// storedSteps enforce the desired classes again, or leave the class that the holder was created in.
func storedSteps(e state.Entry) (steps []Step) {
	for _, a := range e.Assignments {
		from := a.Class
		if from == classes.SystemDefault {
			from = classes.ClassOf(e.Created, a.Resource)
		}
		if from != classes.SystemDefault && e.Container != "" {
			steps = append(steps, Step{Resource: a.Resource, From: from, To: a.Class})
		}
	}
	return steps
}

// verifyPods compares adopted pods with the kernel. Pods that cannot be read stay unverified.
func (r *Reconciler) verifyPods(ctx context.Context) {
	var inClass, elsewhere []string
	for _, id := range r.store.Started() {
		e, known := r.store.Get(id)
		if !known || !e.Unverified {
			continue
		}

		differs, err := r.isElsewhere(ctx, e)
		switch {
		case err != nil:
		case differs:
			elsewhere = append(elsewhere, id)
		default:
			inClass = append(inClass, id)
		}
	}
	r.logFailed(r.store.Verified(inClass, elsewhere))
}

// isElsewhere reports whether the kernel shows a holder in another class than the desired one, the system default included.
func (r *Reconciler) isElsewhere(ctx context.Context, e state.Entry) (bool, error) {
	observed, err := r.observe(ctx, e)
	for _, o := range observed {
		if o.known && o.class != o.assigned.Class {
			return true, err
		}
	}
	return false, errors.Join(err, ctx.Err())
}
