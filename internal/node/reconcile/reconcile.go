// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Reconcile brings all running holders into their desired classes, and returns the number of holders that it moved. It
// first updates default classes to the current configuration, and retries pending requests.
//
// If the classes of a holder cannot be enforced, the holder keeps its slots, the status shows the observed classes, and
// the next Repair tries again. Reconcile must be called after Synchronize and after Configure, and never from a hook.
func (r *Reconciler) Reconcile(ctx context.Context) (moved int) {
	if r.acquire(ctx) != nil {
		return 0
	}
	defer r.release()

	r.reconcileAll(ctx, func(state.Holding, []Step) { moved++ })
	return moved
}

func (r *Reconciler) reconcileAll(ctx context.Context, moved func(state.Holding, []Step)) {
	r.releaseNotCreated(ctx)
	r.endKept(ctx)
	r.verify(ctx)
	r.reconcileStarted(ctx, moved)
	r.monitor(ctx)

	if r.runtimeErr != nil && ctx.Err() == nil {
		r.log.Warn("the runtime does not update containers; retrying", "error", r.runtimeErr)
	}
}

func (r *Reconciler) reconcileStarted(ctx context.Context, moved func(state.Holding, []Step)) {
	ids := r.reconciled()
	defer r.beginRound()()
	for some := range slices.Chunk(ids, together) {
		settled := r.settle(ctx, some)
		for _, id := range some {
			if ctx.Err() != nil {
				return
			}
			if !settled[id] {
				r.store.Refresh(id)
				r.reconcile(ctx, id, moved)
			}
		}
	}
}

// beginRound begins a round of observations in all backends, and returns the function that ends it. The holders that are
// observed must have started before.
func (r *Reconciler) beginRound() (end func()) {
	var ends []func()
	for _, resource := range r.store.Live().Resources {
		if observer, ok := resource.Backend.(classes.RoundObserver); ok {
			ends = append(ends, observer.BeginRound())
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// reconciled returns the IDs of the holders that the reconciler compares with their desired classes.
func (r *Reconciler) reconciled() (ids []string) {
	for _, h := range r.store.Where(func(h *state.Holding) bool { return h.Phase.Reconciled() }) {
		ids = append(ids, h.ID)
	}
	return ids
}

// reconcile compares the desired classes of one holder with its observed classes, and carries out the steps that bring
// the holder into the desired classes. If a step fails, the other steps are still carried out. For example, a step
// fails if another program has removed the group of a draining class, because this group cannot be created again.
func (r *Reconciler) reconcile(ctx context.Context, id string, moved func(state.Holding, []Step)) {
	e, ok := r.store.Compare(id)
	if !ok {
		return
	}
	r.restoreStored(ctx, e)

	done := r.renew(ctx, e)
	observed, process, err := r.observer.observe(ctx, e, done)
	if r.hasEnded(ctx, e, process, err) {
		r.log.Debug("a container or pod ended, but the runtime has not reported its end", "holder", e.String())
		for _, a := range e.Assignments {
			r.before(ctx, e.Holder, a.Resource, e.ObservedClass(a.Resource))
		}
		r.store.Release(id)
		return
	}
	if err != nil && len(e.Observed) > 0 {
		r.store.NotEnforced(e, err)
	}

	if done = append(done, r.move(ctx, e, r.plan(e, observed))...); len(done) > 0 {
		moved(e, done)
	}
}

// move carries out steps for a holder, and records their outcome. It returns those that are done. It first tries all steps together, with
// one call to the runtime.
func (r *Reconciler) move(ctx context.Context, e state.Holding, steps []Step) (done []Step) {
	if len(steps) == 0 {
		return nil
	}

	err := r.make(ctx, e.Holder, steps)
	switch {
	case err == nil:
		r.made(e, steps...)
		return steps
	case len(steps) > 1:
		for _, s := range steps {
			done = append(done, r.move(ctx, e, []Step{s})...)
		}
		return done
	}

	r.logFailure(e, steps[0], err)
	r.store.NotEnforced(e, err)
	r.observeStep(ctx, e, steps[0])
	return nil
}

// plan returns the steps from the observed classes to the desired classes. For a resource that needs no step, plan
// records the observed class. If the kernel does not show the class, plan records the last observed class again. It
// also records what other programs have set for the holder.
func (r *Reconciler) plan(e state.Holding, observed []observation) (steps []Step) {
	for _, o := range observed {
		if name := o.assigned.Resource; e.Foreign[name] != o.Foreign || e.Stale[name] != o.Stale || e.Limited[name] != o.Limited {
			r.store.Modify(e.ID, func(h *state.Holding) { h.SetObservation(name, o.Observation) })
		}
		if step, needed := o.step(e); needed {
			step.stale = o.Stale
			steps = append(steps, step)
			continue
		}
		class := o.Class
		if !o.Known {
			class = e.ObservedClass(o.assigned.Resource)
		}
		r.store.Observe(e.ID, o.assigned.Resource, class)
	}
	return steps
}

// step returns the step that a holder needs for a resource. If the kernel does not show the holder's class, step
// assumes the class in e.Observed, or the desired class if e.Observed has no class for the resource. If the holder has stale
// properties, an observation of the desired class does not show that it has moved there.
func (o observation) step(e state.Holding) (s Step, needed bool) {
	want := o.assigned.Class
	s = Step{Resource: o.assigned.Resource, From: want, To: want}
	recorded, elsewhere := e.Observed[s.Resource]

	switch {
	case o.Known && o.Class == want && (o.Stale == "" || !elsewhere), o.unavailable:
		return Step{}, false
	case o.Known && o.draining:
		return s, true // the step enforces the draining class again, because no holder can be moved into it from another class
	case o.Known && o.Class != want:
		s.From = o.Class
		return s, true
	case elsewhere:
		s.From = recorded
		return s, true
	}
	return s, (want != classes.SystemDefault || o.Left) && !o.draining
}

// hasEnded reports whether a holder has ended. A holder has also ended if its PID now belongs to another process. A pod
// has ended if it has no cgroup any more, because containerd calls no hook at the end of a pod that ran before
// containerd was restarted.
//
// A container without a PID has ended if it has no cgroup any more and the runtime reports the PIDs of other
// containers. This is so if the container was ending when the plugin registered: containerd then lists it as running,
// without a PID, and does not report its end again. If the runtime reports no PIDs, a missing cgroup proves nothing:
// CRI-O before 1.36 reports none, and the cgroup of e.g. a Kata container is not on the host.
func (r *Reconciler) hasEnded(ctx context.Context, e state.Holding, p process, observeErr error) bool {
	switch {
	case errors.Is(observeErr, classes.ErrEnded), errors.Is(observeErr, fs.ErrNotExist) && e.Container == "":
		return true
	case e.Container == "", e.PID <= 0 && r.store.Runtime().ReportsPIDs:
		return !r.mayHaveCgroup(ctx, e.Holder)
	case !p.looked:
		return false
	case !p.exists:
		return true
	}

	replaced := false
	r.store.Modify(e.ID, func(h *state.Holding) { replaced = h.SetStartTime(p.startTime) })
	return replaced
}

// releaseNotCreated releases the containers whose creation failed without a report. For example, CRI-O calls no hook if
// its OCI runtime refuses a creation. A container without a cgroup counts as not created. This can be wrong: some
// runtimes, e.g. containerd, make the cgroup only when the container starts. The start hook then adopts the container that
// was released by mistake.
func (r *Reconciler) releaseNotCreated(ctx context.Context) {
	for _, e := range r.store.Where(func(h *state.Holding) bool { return h.IsLate(r.now()) }) {
		if !r.mayHaveCgroup(ctx, e.Holder) {
			r.log.Info("a container was not created, but the runtime has not reported the failure", "holder", e.String())
			r.store.Release(e.ID)
		}
	}
}

// endKept ends the kept classes of pods whose end the runtime has not reported.
func (r *Reconciler) endKept(ctx context.Context) {
	for _, pod := range r.store.KeptPods() {
		if pod.CgroupsPath != "" && !r.mayHaveCgroup(ctx, pod) {
			r.store.ReleasePod(pod.ID)
		}
	}
}

// mayHaveCgroup returns false if a holder has no cgroup. If that is unknown, it returns true.
func (r *Reconciler) mayHaveCgroup(ctx context.Context, h classes.Holder) bool {
	if r.hasCgroup == nil {
		return true
	}
	call := kernel.Call{HolderID: h.ID}
	what := func() string { return "look for the cgroup of " + h.String() }
	has, err := await(ctx, r.enforcer, observeTime, call, what, func(context.Context) (bool, error) {
		return r.hasCgroup(h), nil
	})
	return has || err != nil
}

// logFailure logs a failed move. The first failure is a warning. While the holder stays outside of its class, further failures
// are debug messages.
func (r *Reconciler) logFailure(e state.Holding, s Step, err error) {
	log := r.log.Debug
	if _, before := e.Observed[s.Resource]; !before {
		log = r.log.Warn
	}
	log("cannot move a container or pod to its class; retrying", "holder", e.String(), "error", err)
}

// restoreStored replaces the values that the runtime has stored for a holder, if they differ from the desired classes.
func (r *Reconciler) restoreStored(ctx context.Context, e state.Holding) {
	if e.Stored != state.StoredStale {
		return
	}

	unified, err := r.unified(e.Holder, storedSteps(e))
	if err == nil {
		err = r.updateRuntime(ctx, e.Holder, unified)
	}
	switch {
	case err == nil:
		r.store.Modify(e.ID, func(h *state.Holding) { h.Stored = state.StoredByUpdate })
	case r.runtimeErr == nil: // the runtime answered, but rejected the update
		r.log.Debug("the runtime still stores values of another class; retrying", "holder", e.String(), "error", err)
	}
}

// storedSteps returns the steps whose values replace all values that the runtime has stored for a container.
func storedSteps(e state.Holding) (steps []Step) {
	for _, a := range e.Assignments {
		if e.Container != "" {
			steps = append(steps, Step{Resource: a.Resource, From: a.Class, To: a.Class})
		}
	}
	return steps
}

// verify reads the classes of unverified pods and volumes from the kernel. If a class cannot be read, the holder stays
// unverified. If the kernel's values do not identify a class, the holder gets its requested class if a slot is free.
// Such holders come before those that are in another class.
func (r *Reconciler) verify(ctx context.Context) {
	var inClass []string
	var unclear, elsewhere []state.Shown
	unverified := inOrder(r.store.Where(func(h *state.Holding) bool { return h.Phase == state.Unverified }))
	defer r.beginRound()()
	for _, e := range unverified {
		observed, _, err := r.observer.observe(ctx, e, nil)
		shown := state.Shown{ID: e.ID, Classes: map[string]string{}}
		for _, o := range observed {
			if o.Known {
				shown.Classes[o.assigned.Resource] = o.Class
			}
		}
		switch {
		case errors.Join(err, ctx.Err()) != nil:
		case slices.ContainsFunc(observed, func(o observation) bool { return o.Known && o.Class != o.assigned.Class }):
			elsewhere = append(elsewhere, shown)
		case slices.ContainsFunc(observed, func(o observation) bool { return !o.Known }):
			unclear = append(unclear, shown)
		default:
			inClass = append(inClass, e.ID)
		}
	}
	r.logFailed(r.store.Verified(inClass, append(unclear, elsewhere...)))
}
