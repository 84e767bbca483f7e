// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Previewer is a classes.Backend that can report the status that a configuration would have, without writing anything.
type Previewer interface {
	// Preview returns the status that the backend would have if `config` were the live configuration.
	Preview(ctx context.Context, config classes.BackendConfig) (classes.BackendStatus, error)
}

// Check returns the resources that a set of class files would offer, and an error if the files could not be made live
// on this machine. It changes nothing. A resource that the machine lacks is unavailable, which is not an error.
func (g *configurer) Check(ctx context.Context, files classes.FileSet) ([]state.ResourceStatus, error) {
	if files.Err != nil {
		return nil, files.Err
	}
	if err := g.acquire(ctx); err != nil {
		return nil, err
	}
	defer g.release()

	next, err := g.check(ctx, files.Config)
	if err != nil {
		return nil, err
	}
	resources := make([]state.ResourceStatus, 0, len(files.Config.Resources))
	for _, config := range files.Config.Resources {
		status, err := g.preview(ctx, next[config.Name])
		if err != nil {
			return nil, err
		}
		resources = append(resources, status)
	}
	return resources, nil
}

func (g *configurer) preview(ctx context.Context, resource state.Resource) (state.ResourceStatus, error) {
	status := state.ResourceStatus{Offer: classes.Offer{Resource: resource.Config.Resource, Unavailable: resource.Unavailable}}
	previewer, ok := resource.Backend.(Previewer)
	if !ok || resource.Unavailable != nil {
		return status, nil
	}

	what := func() string { return "check " + resource.Config.Name }
	would, err := await(ctx, g.enforcer, changeTime, kernel.Call{Resource: resource.Config.Name}, what,
		func(ctx context.Context) (classes.BackendStatus, error) {
			return previewer.Preview(ctx, resource.Config.Backend)
		})
	status.Conditions, status.Degraded, status.Features = would.Conditions, would.Degraded, would.Features
	return status, err
}

// Configure makes a set of class files the live configuration. It applies all files or none. If it returns an error,
// the previous configuration stays live, and the store's Status reports the error. A resource that the machine lacks is
// not an error: Configure offers it as unavailable.
func (g *configurer) Configure(ctx context.Context, files classes.FileSet) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	defer g.release()

	err := files.Err
	if err == nil {
		err = g.apply(ctx, files, true)
	}
	if err != nil {
		g.store.RejectConfig(err)
	}
	return err
}

// Restore sets the resource of claims and the volumes with claims. `ofClaims` is nil if there is no such resource. The
// next Configure makes both live.
func (g *configurer) Restore(ofClaims *classes.ResourceConfig, volumes []classes.ClaimedVolume) {
	g.claims = ofClaims
	g.store.FollowClaims(volumes, func(string) bool { return false })
}

// Follow makes the resource of claims live, together with the class files, and enforces its classes on volumes. It
// replaces the earlier resource and the earlier claims of all volumes. `ofClaims` is nil if there is no such resource.
// The function `redefined` reports whether the limits of a class have changed. Follow returns the number of holders
// that it has moved. After an error, the earlier claims stay.
func (r *Reconciler) Follow(
	ctx context.Context, ofClaims *classes.ResourceConfig, volumes []classes.ClaimedVolume, redefined func(class string) bool,
) (moved int, err error) {
	if err := r.acquire(ctx); err != nil {
		return 0, err
	}
	defer r.release()

	if before := r.claims; !reflect.DeepEqual(before, ofClaims) {
		r.claims = ofClaims
		if err := r.apply(ctx, r.files, false); err != nil {
			r.claims = before
			return 0, err
		}
	}
	r.store.FollowClaims(volumes, redefined)
	r.reconcileAll(ctx, func(state.Holding, []Step) { moved++ })
	return moved, nil
}

// apply makes class files live, together with the classes of claims. The parameter `loaded` is false if the class files are live already.
// Without class files, apply does nothing.
func (g *configurer) apply(ctx context.Context, files classes.FileSet, loaded bool) error {
	if files.Config == nil {
		return nil
	}
	live := files
	if g.claims != nil {
		live.Config = &classes.Config{Resources: append(slices.Clone(files.Config.Resources), *g.claims)}
	}

	next, err := g.check(ctx, live.Config)
	if err != nil {
		return err
	}
	if err := g.applyAll(ctx, live.Config, next); err != nil {
		return err
	}

	g.files = files
	for _, gone := range g.store.GoLive(live, next, loaded) {
		// The classes of a removed resource drain: containers that have such a class keep it until they end.
		if err := g.awaitResource(ctx, gone, "withdraw", g.store.Live().Resources[gone].Withdraw); err != nil {
			g.log.Warn("cannot clean up a resource that was removed from the class files", "resource", gone, "error", err)
		}
	}
	if err := g.releaseUnused(ctx); err != nil {
		g.log.Warn("cannot clean up removed classes; retrying", "error", err)
	}
	return nil
}

// check returns the resources of a configuration. It uses the existing backends, and creates the missing ones. Each
// backend checks whether its part of the configuration can be applied.
func (g *configurer) check(ctx context.Context, config *classes.Config) (map[string]state.Resource, error) {
	next := map[string]state.Resource{}
	var errs []error
	for _, c := range config.Resources {
		resource := g.resourceFor(c)
		err := g.awaitResource(ctx, c.Name, "check", func(ctx context.Context) error { return resource.Check(ctx, c.Backend) })
		if err != nil && !errors.As(err, &resource.Unavailable) {
			errs = append(errs, locate(c, err)...)
		}
		next[c.Name] = resource
	}
	return next, errors.Join(errs...)
}

func (g *configurer) resourceFor(config classes.ResourceConfig) state.Resource {
	old, ok := g.store.Live().Resources[config.Name]
	if !ok || old.Config.Kind != config.Kind || old.Config.Scope != config.Scope {
		backend := g.kinds[config.Kind].New(config.Name, config.Scope)
		if sharer, ok := backend.(classes.Sharer); ok {
			sharer.ShareWith(g.inPod)
		}
		if rememberer, ok := backend.(classes.Rememberer); ok {
			if err := rememberer.Remember(state.MemoryOf(g.changes)); err != nil {
				g.log.Warn("cannot load what the backend of a former process has saved", "resource", config.Name, "error", err)
			}
		}
		return state.Resource{Backend: backend, Config: config}
	}
	return state.Resource{Backend: old.Backend, Config: config}
}

// inPod returns a pod and its containers and volumes with their desired classes. If `podUID` is empty, it returns all. It leaves out
// the volumes of containers that have not started, because their limits are not in force yet.
func (g *configurer) inPod(podUID string) []classes.Holding {
	found := g.store.Where(func(h *state.Holding) bool {
		return (podUID == "" || h.PodUID == podUID) && (h.Phase.Started() || h.Scope() != classes.VolumeScope)
	})
	holdings := make([]classes.Holding, len(found))
	for i, h := range found {
		holdings[i] = h.Holding
	}
	return holdings
}

func locate(config classes.ResourceConfig, err error) []error {
	var located []error
	for _, problem := range classes.SplitErrors(err) {
		field := classes.FieldError{File: config.File, Line: config.Line, Field: config.Name, Problem: problem.Error()}
		located = append(located, &problemError{FieldError: field, cause: problem})
	}
	return located
}

// problemError is a *classes.FieldError that wraps the cause of the problem, e.g. an errno of the kernel.
type problemError struct {
	classes.FieldError
	cause error
}

func (e *problemError) Unwrap() []error { return []error{&e.FieldError, e.cause} }

// applyAll applies the configuration of the resources one after another. If one resource fails, applyAll rolls back
// the resources that were already applied.
func (g *configurer) applyAll(ctx context.Context, config *classes.Config, next map[string]state.Resource) error {
	for i, c := range config.Resources {
		resource := next[c.Name]
		if resource.Unavailable != nil {
			continue
		}
		err := g.awaitResource(ctx, c.Name, "apply", func(ctx context.Context) error { return resource.Apply(ctx, c.Backend) })
		if err != nil && !errors.As(err, &resource.Unavailable) {
			err = fmt.Errorf("apply %s: %w", c.Name, err)
			return errors.Join(err, g.rollBack(context.WithoutCancel(ctx), config.Resources[:i], next))
		}
		next[c.Name] = resource
	}
	return nil
}

// rollBack restores the earlier configuration of each backend. It withdraws the configuration of a backend that had none before.
func (g *configurer) rollBack(ctx context.Context, applied []classes.ResourceConfig, next map[string]state.Resource) error {
	var errs []error
	for _, c := range applied {
		fresh := next[c.Name]
		if fresh.Unavailable != nil {
			continue
		}

		back := func(ctx context.Context) error {
			if old, ok := g.store.Live().Resources[c.Name]; ok && old.Unavailable == nil {
				return old.Apply(ctx, old.Config.Backend)
			}
			return errors.Join(fresh.Withdraw(ctx), fresh.Release(ctx, func(string) bool { return false }))
		}
		if err := g.awaitResource(ctx, c.Name, "roll back", back); err != nil {
			errs = append(errs, fmt.Errorf("roll back %s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// ReleaseUnused releases what the backends keep for classes that were removed from the configuration and are no longer in use.
func (g *configurer) ReleaseUnused(ctx context.Context) error {
	if err := g.acquire(ctx); err != nil {
		return err
	}
	defer g.release()
	return g.releaseUnused(ctx)
}

func (g *configurer) releaseUnused(ctx context.Context) error {
	if g.store.Runtime().Since.IsZero() {
		return nil
	}

	var errs []error
	live := g.store.Live()
	for _, name := range live.Names() {
		inUse := func(class string) bool { return g.store.MayBeUsed(name, class) }
		err := g.awaitResource(ctx, name, "release", func(ctx context.Context) error { return live.Resources[name].Release(ctx, inUse) })
		if err != nil {
			errs = append(errs, fmt.Errorf("release classes of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
