// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Update changes classes of a running container, or of a pod if the container name is empty. It changes either all
// requested classes or none (KEP-3008, "UpdateContainerResourcesRequest"). The map `requests` has the new class of each
// resource, by the full or short name of the resource. Without a connection to the runtime, Update always fails, because
// the runtime may have replaced the container or pod.
func (r *Reconciler) Update(ctx context.Context, owner qos.Subject, requests map[string]string) error {
	if err := r.acquire(ctx); err != nil {
		return fmt.Errorf("%s: another change is still in progress: %w", owner, err)
	}
	defer r.release()
	r.patience = updateTime
	if !r.store.Runtime().Synchronized {
		return fmt.Errorf("%s: %w; try again", owner, state.ErrNotConnected)
	}

	before, changes, err := r.store.Change(owner, requests)
	if err != nil {
		return err
	}
	steps := stepsTo(changes, before)
	err = r.remember(before.ID)
	if err == nil {
		err = r.make(ctx, before.Holder, steps)
	}
	if err != nil {
		return r.revert(ctx, before, steps, err)
	}

	r.store.Confirm(before.ID, changes)
	r.store.Modify(before.ID, func(h *state.Holding) { h.InForce = r.now() })
	for _, s := range steps {
		r.log.Info("class changed", "holder", before.String(), "resource", s.Resource, "from", s.From, "to", s.To)
	}
	return nil
}

func stepsTo(changes []classes.Assignment, before state.Holding) (steps []Step) {
	for _, a := range changes {
		if from := before.ObservedClass(a.Resource); from != a.Class {
			steps = append(steps, Step{Resource: a.Resource, From: from, To: a.Class})
		}
	}
	return steps
}

// revert restores the classes that a holder had before a failed change. It returns the error of the change.
func (r *Reconciler) revert(ctx context.Context, before state.Holding, steps []Step, err error) error {
	if _, known := r.store.Get(before.ID); !known {
		return fmt.Errorf("%s: %w any more: %w", before, state.ErrNotFound, err)
	}

	if errors.Is(err, state.ErrUnanswered) {
		err = fmt.Errorf("%w; if the runtime makes the change, qos-nri-plugin restores the previous class; try again", err)
	}
	r.store.Modify(before.ID, func(h *state.Holding) { h.Assignments = before.Assignments })
	for _, s := range steps {
		r.observeStep(ctx, before, s)
	}
	return errors.Join(fmt.Errorf("%s: %w", before, err), r.remember(before.ID))
}

// SaveOriginals saves the originals of a container (classes.Spec), unless they are saved already. It must be called
// before the runtime is asked to store values, because the runtime then no longer reports the former values.
func SaveOriginals(store *state.Store, changes state.Changes, id string) error {
	e, known := store.Get(id)
	if saved, isSaved := changes.Originals(id); !known || isSaved && maps.Equal(saved, e.Spec.Originals) {
		return nil
	}
	if err := changes.SetOriginals(id, e.Spec.Originals); err != nil {
		return fmt.Errorf("%s: save the values that it had before its classes: %w; after a restart, qos-nri-plugin may restore other values", e, err)
	}
	return nil
}

// remember saves the classes that updates have assigned to a holder, so that they survive a restart of the plugin.
func (r *Reconciler) remember(id string) error {
	e, known := r.store.Get(id)
	if !known {
		return nil
	}
	return r.changes.Set(id, e.Updates())
}
