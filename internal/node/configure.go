// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Configure makes a set of class files the live configuration: it is checked against the machine, then applied whole,
// or not at all, the one before staying live. The outcome is in Status too. A resource that the machine does not have
// is no error; it is offered as unavailable.
func (n *Node) Configure(ctx context.Context, source classes.FileSet) error {
	if err := n.changing.take(ctx); err != nil {
		return err
	}
	defer n.changing.leave()
	err := source.Err
	if err == nil {
		err = n.apply(ctx, source)
	}
	if err == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if before := n.config.Err; before == nil || before.Error() != err.Error() { // else nobody wants to hear of it again
		n.config.Err, n.config.Failed = err, time.Now()
		n.notify()
	}
	return err
}

func (n *Node) apply(ctx context.Context, source classes.FileSet) error {
	next, err := n.check(ctx, source.Config)
	if err != nil {
		return err
	}
	if err := n.applyAll(ctx, source.Config, next); err != nil {
		return err
	}
	n.withdraw(ctx, n.goLive(source, next))
	if err := n.releaseUnused(ctx); err != nil {
		n.log.Warn("classes that are gone could not be cleaned up; it is tried again", "error", err)
	}
	return nil
}

// withdraw takes back what backends of resources that are gone have applied. What runs in their classes drains.
func (n *Node) withdraw(ctx context.Context, gone []string) {
	for _, name := range gone {
		backend, err := n.backend(name)
		if err == nil {
			err = backend.Withdraw(ctx)
		}
		if err != nil {
			n.log.Warn("a resource that is gone could not be taken back", "resource", name, "error", err)
		}
	}
}

// check makes the backends that a configuration needs, those that exist already being kept, and asks each of them
// whether its part can be applied.
func (n *Node) check(ctx context.Context, config *classes.Config) (map[string]backend, error) {
	next := map[string]backend{}
	var errs []error
	for _, resource := range config.Resources {
		b := n.backendFor(resource)
		err := b.Check(ctx, resource.Backend)
		if err != nil && !errors.As(err, &b.unavailable) {
			errs = append(errs, locate(resource, err)...)
		}
		next[resource.Name] = b
	}
	return next, errors.Join(errs...)
}

// locate says of each problem of a resource where the resource is defined.
func locate(resource classes.ResourceConfig, err error) []error {
	var located []error
	for _, problem := range classes.SplitErrors(err) {
		field := classes.FieldError{File: resource.File, Line: resource.Line, Field: resource.Name, Problem: problem.Error()}
		located = append(located, &problemError{FieldError: field, cause: problem})
	}
	return located
}

// problemError is a *classes.FieldError with its cause, so that the kernel's errno is found in it.
type problemError struct {
	classes.FieldError
	cause error
}

func (e *problemError) Unwrap() []error { return []error{&e.FieldError, e.cause} }

func (n *Node) backendFor(resource classes.ResourceConfig) backend {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, ok := n.backends[resource.Name]
	if !ok || old.config.Kind != resource.Kind || old.config.Scope != resource.Scope {
		return backend{Backend: n.kinds[resource.Kind].New(resource.Name, resource.Scope), config: resource}
	}
	return backend{Backend: old.Backend, config: resource}
}

// applyAll applies the parts one after another, and on an error puts back those that were applied.
func (n *Node) applyAll(ctx context.Context, config *classes.Config, next map[string]backend) error {
	for i, resource := range config.Resources {
		b := next[resource.Name]
		if b.unavailable != nil {
			continue
		}
		err := b.Apply(ctx, resource.Backend)
		if err != nil && !errors.As(err, &b.unavailable) {
			err = fmt.Errorf("apply %s: %w", resource.Name, err)
			return errors.Join(err, n.putBack(context.WithoutCancel(ctx), config.Resources[:i], next))
		}
		next[resource.Name] = b
	}
	return nil
}

// putBack gives backends the configuration that they had before, or none.
func (n *Node) putBack(ctx context.Context, applied []classes.ResourceConfig, next map[string]backend) error {
	var errs []error
	for _, resource := range applied {
		if next[resource.Name].unavailable != nil {
			continue
		}
		n.mu.Lock()
		old, ok := n.backends[resource.Name]
		n.mu.Unlock()
		var err error
		if ok && old.unavailable == nil {
			err = old.Apply(ctx, old.config.Backend)
		} else {
			fresh := next[resource.Name]
			err = errors.Join(fresh.Withdraw(ctx), fresh.Release(ctx, func(string) bool { return false }))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("put back %s: %w", resource.Name, err))
		}
	}
	return errors.Join(errs...)
}

// goLive offers what was applied. Backends whose resource is gone are kept for what still runs in their classes, and
// their names returned.
func (n *Node) goLive(source classes.FileSet, next map[string]backend) (gone []string) {
	offers := make([]classes.Offer, 0, len(source.Config.Resources))
	for _, resource := range source.Config.Resources {
		offers = append(offers, classes.Offer{Resource: resource.Resource, Unavailable: next[resource.Name].unavailable})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, old := range n.backends {
		if _, kept := next[name]; !kept {
			next[name] = old
			gone = append(gone, name)
		}
	}
	n.catalog, n.backends = classes.NewCatalog(offers), next
	n.config = ConfigStatus{Loaded: time.Now(), Hash: source.Hash, Files: source.Files, Generation: n.config.Generation + 1}
	n.notify()
	return gone
}

// ReleaseUnused drops what backends keep only for classes that are gone from the configuration and in use no more.
func (n *Node) ReleaseUnused(ctx context.Context) error {
	if err := n.changing.take(ctx); err != nil {
		return err
	}
	defer n.changing.leave()
	return n.releaseUnused(ctx)
}

// releaseUnused does nothing before the runtime has told what runs: who has a class is not known until then.
func (n *Node) releaseUnused(ctx context.Context) error {
	n.mu.Lock()
	if n.info.Since.IsZero() {
		n.mu.Unlock()
		return nil
	}
	backends := make(map[string]classes.Backend, len(n.backends))
	for name, b := range n.backends {
		backends[name] = b.Backend
	}
	n.mu.Unlock()
	var errs []error
	for name, b := range backends {
		inUse := func(class string) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.ledger.InUse(name, class) > 0
		}
		if err := b.Release(ctx, inUse); err != nil {
			errs = append(errs, fmt.Errorf("release classes of %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
