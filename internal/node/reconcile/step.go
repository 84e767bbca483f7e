// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Step moves a holder from one class of a resource to another class. A step whose From and To are equal enforces the
// class again, and clears values that an earlier configuration of the class has set.
type Step struct {
	Resource, From, To string
	// stale has the properties that the holder was observed without, as in classes.Observation.
	stale string
}

func (s Step) errorf(err error) error { return fmt.Errorf("class %q of %s: %w", s.To, s.Resource, err) }

// Enforcement returns the steps that enforce the classes of a new holder. If a container was created without its class,
// the step moves it there. Each other step enforces the class again, because its values may have changed since the
// runtime created the holder. The steps for classes that a claim requests are optional: the holder also starts without
// them.
func Enforcement(e state.Holding) (required, optional []Step) {
	for _, a := range e.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		s := Step{Resource: a.Resource, From: a.Class, To: a.Class}
		if e.Container != "" && e.Volume == "" {
			s.From = e.ObservedClass(a.Resource)
		}
		if a.Source == classes.SourceClaim {
			optional = append(optional, s)
		} else {
			required = append(required, s)
		}
	}
	return required, optional
}

// Enforce carries out the steps with the backends only, without a call to the runtime. It stops at the first error.
func Enforce(ctx context.Context, store *state.Store, h classes.Holder, steps []Step) error {
	for _, s := range steps {
		backend, err := backendOf(store, s.Resource)
		if err != nil {
			return err
		}
		if err := backend.Enforce(ctx, h, s.From, s.To); err != nil {
			return s.errorf(err)
		}
	}
	return nil
}

func backendOf(store *state.Store, resource string) (classes.Backend, error) {
	if r, ok := store.Live().Resources[resource]; ok {
		return r.Backend, nil
	}
	return nil, fmt.Errorf("%s is not configured any more: %w", resource, classes.ErrUnknownResource)
}

// make carries out the steps. If the runtime may be asked for updates, make first sets the cgroup v2 values of the new
// classes through the runtime, which stores them. Then it enforces and verifies the classes with the backends. If a
// step fails, make undoes all steps as far as possible. If the runtime does not answer, make has enforced nothing yet,
// and undoes nothing.
func (f *enforcer) make(ctx context.Context, h classes.Holder, steps []Step) error {
	if err := f.possible(h, steps); err != nil {
		return err
	}
	unified, err := f.unified(h, steps)
	if err != nil {
		return err
	}
	if f.runtimeErr != nil && len(unified) > 0 {
		return f.runtimeErr
	}

	for _, s := range steps {
		if s.From != s.To {
			f.before(ctx, h, s.Resource, s.From)
		}
	}
	err = f.updateRuntime(ctx, h, unified)
	switch {
	case errors.Is(err, state.ErrRuntimeBusy):
		return fmt.Errorf("%w; nothing was changed; try again", err)
	case errors.Is(err, state.ErrNotConnected), errors.Is(err, state.ErrUnanswered):
		return err
	}
	if err == nil {
		err = f.enforceAgain(ctx, h, steps)
	}
	if err != nil {
		return errors.Join(err, f.undo(ctx, h, steps))
	}
	return nil
}

// renew enforces again those classes of a holder whose values the last configuration has changed. It returns the steps
// that are done. If a step fails, the next observation finds the reason, and the step is tried again.
func (f *enforcer) renew(ctx context.Context, e state.Holding) (done []Step) {
	for _, a := range e.Assignments {
		s := Step{Resource: a.Resource, From: a.Class, To: a.Class}
		if f.hasChanged(e, a) && f.make(ctx, e.Holder, []Step{s}) == nil {
			f.made(e, s)
			done = append(done, s)
		}
	}
	return done
}

// hasChanged reports whether a holder has the values of an earlier configuration of its class, and can get the new ones.
func (f *enforcer) hasChanged(e state.Holding, a classes.Assignment) bool {
	live := f.store.Live()
	resource, there := live.Resources[a.Resource]
	_, elsewhere := e.Observed[a.Resource]
	if !there || elsewhere || e.Phase == state.Unverified || resource.Unavailable != nil || live.Drains(a) {
		return false
	}
	checker, ok := resource.Backend.(classes.ChangeChecker)
	return ok && checker.HasChanged(e.Holder, a.Class)
}

// made records steps that are done.
func (f *enforcer) made(e state.Holding, steps ...Step) {
	f.store.Modify(e.ID, func(h *state.Holding) { h.InForce = f.now() })
	for _, s := range steps {
		f.store.Observe(e.ID, s.Resource, s.To)
	}
}

// possible returns an error if a container would have to change a property that a runtime sets only when it creates the
// container. If both classes set a stale property alike, the container itself has changed the property, and can still
// be moved.
func (f *enforcer) possible(h classes.Holder, steps []Step) error {
	for _, s := range steps {
		if s.From != s.To && s.stale != "" && !f.setAlike(h, s) {
			return s.errorf(fmt.Errorf("%w: a runtime sets %s only when it creates a container; create the pod again", state.ErrImmutable, s.stale))
		}
	}
	return nil
}

// setAlike reports whether both classes of a step set the same values of the properties that a runtime sets only when it creates the
// container.
func (f *enforcer) setAlike(h classes.Holder, s Step) bool {
	backend, err := backendOf(f.store, s.Resource)
	if err != nil {
		return false
	}
	before, errBefore := backend.Adjust(h, s.From, s.From)
	after, errAfter := backend.Adjust(h, s.To, s.To)
	_, differs := classes.Immutable(before, after)
	return errBefore == nil && errAfter == nil && !differs
}

// enforceAgain carries out the steps with the backends. If the runtime must not be asked for updates, it tries twice: a resize that began
// before the steps may write the former values before they are verified.
func (f *enforcer) enforceAgain(ctx context.Context, h classes.Holder, steps []Step) error {
	err := f.enforce(ctx, h, steps)
	if err != nil && f.store.Runtime().NoUpdates != "" {
		err = f.enforce(ctx, h, steps)
	}
	return err
}

// undo reverts all steps in reverse order. Reverting a step that was not made changes nothing. If reverting one step
// fails, undo continues with the other steps.
func (f *enforcer) undo(ctx context.Context, h classes.Holder, steps []Step) error {
	var back []Step
	for _, s := range steps {
		if s.From != s.To {
			back = append(back, Step{Resource: s.Resource, From: s.To, To: s.From})
		}
	}
	if len(back) == 0 {
		return nil
	}

	ctx = context.WithoutCancel(ctx)
	f.runtimeErr = nil // the runtime may have carried out a request that returned an error, so it is called again
	unified, err := f.unified(h, back)
	runtimeErr := f.updateRuntime(ctx, h, unified)
	if runtimeErr != nil {
		f.store.Modify(h.ID, stale)
	}
	errs := []error{err, runtimeErr}
	for _, s := range back {
		errs = append(errs, f.enforce(ctx, h, []Step{s}))
	}

	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// unified returns the cgroup v2 values that the runtime must set for the steps, and records that it may set them. If one step
// fails, unified still returns the values of the other steps. It returns none if the runtime must not be asked for updates. The
// backends then write the values, and Store.Resize replaces what the runtime has stored.
func (f *enforcer) unified(h classes.Holder, steps []Step) (map[string]string, error) {
	var all classes.Adjustment
	var errs []error
	for _, s := range steps {
		backend, err := backendOf(f.store, s.Resource)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		one, err := backend.Adjust(h, s.From, s.To)
		if err != nil {
			errs = append(errs, s.errorf(err))
			continue
		}
		if recorder, ok := backend.(classes.Recorder); ok && len(one) > 0 {
			recorder.Record(h, s.To)
		}
		if s.To == classes.SystemDefault {
			one = one.Restored(h.Spec.Originals)
		}
		all = all.Merge(one)
	}
	if f.store.Runtime().NoUpdates != "" {
		all = nil
	}
	return all.Unified(), errors.Join(errs...)
}

// stale marks a holder for which the runtime may have stored values that differ from the desired classes.
func stale(h *state.Holding) { h.Stored = state.StoredStale }

// updateRuntime sets cgroup v2 values through the runtime. If the plugin is not connected, or the runtime is busy or
// does not answer, the next calls in this round fail at once and do not wait for the timeout again. A runtime that does
// not answer may still set the values later, so updateRuntime marks the holder as stale.
func (f *enforcer) updateRuntime(ctx context.Context, h classes.Holder, unified map[string]string) error {
	if len(unified) == 0 {
		return nil
	}
	if f.runtimeErr != nil {
		return f.runtimeErr
	}

	err := state.ErrNotConnected
	if runtime := f.runtime.Load(); runtime != nil {
		ctx, cancel := context.WithTimeout(ctx, f.patience)
		defer cancel()
		if err := SaveOriginals(f.store, f.changes, h.ID); err != nil {
			f.log.Warn("cannot save the originals of a container", "error", err)
		}
		f.store.Modify(h.ID, (*state.Holding).AskedToStore)
		err = (*runtime).SetUnified(ctx, h.ID, unified)
	}
	switch {
	case err == nil:
		f.store.SetStored(h.ID, unified)
	case errors.Is(err, state.ErrUnanswered):
		f.store.Modify(h.ID, stale)
		f.runtimeErr = err
	case errors.Is(err, state.ErrNotConnected), errors.Is(err, state.ErrRuntimeBusy):
		f.runtimeErr = err
	}
	return err
}
