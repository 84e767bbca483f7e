// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state has the resources of this node, and the classes that its containers and pods have, request or were refused. It
// has one lock and does no I/O.
package state

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Changes stores classes that were changed after the creation of a container or pod. Neither the runtime nor the kernel reports
// them after a restart. Only Set does I/O; Store does not call it.
type Changes interface {
	// Get returns the changed assignments of a container or sandbox.
	Get(id string) ([]classes.Assignment, bool)
	// Set replaces them, durably; an empty list forgets the ID.
	Set(id string, changed []classes.Assignment) error
	// Forget drops an ID.
	Forget(id string)
	// Keep drops every ID for which live returns false.
	Keep(live func(id string) bool)
}

// Store is safe for concurrent use.
type Store struct {
	now     func() time.Time
	changes Changes

	// mu guards the fields below. All hooks wait for it, so it is held only for work in memory.
	mu        sync.Mutex
	catalog   *classes.Catalog
	resources map[string]Resource // by name; resources that are not configured any more are kept while in use
	ledger    *classes.Ledger
	records   map[string]record // by the ID of the container or sandbox, as in ledger
	sequence  uint64            // the highest number of a record
	runtime   RuntimeInfo
	config    ConfigStatus
	refusals  Refusals
	refused   map[classes.Owner]Refused
	drifts    map[Correction]uint64
	watchers  chan struct{} // closed and replaced at every change
	drained   chan struct{} // signalled when an assignment of a class that is not offered any more has ended
}

// Resource is a resource's backend with the configuration that it last applied.
type Resource struct {
	classes.Backend
	Config classes.ResourceConfig
	// Unavailable is why the machine does not have the resource; nil when it does.
	Unavailable *classes.Unavailable

	drift driftRecord
}

// New returns a store that offers nothing yet. A nil now is time.Now. With nil changes, changed classes are lost at a restart.
func New(changes Changes, now func() time.Time) *Store {
	if changes == nil {
		changes = noChanges{}
	}
	if now == nil {
		now = time.Now
	}

	return &Store{
		now: now, changes: changes,
		catalog: classes.NewCatalog(nil), resources: map[string]Resource{}, ledger: classes.NewLedger(), records: map[string]record{},
		refusals: Refusals{}, refused: map[classes.Owner]Refused{}, drifts: map[Correction]uint64{},
		watchers: make(chan struct{}), drained: make(chan struct{}, 1),
	}
}

// Changes returns the store of changed classes.
func (s *Store) Changes() Changes { return s.changes }

type noChanges struct{}

func (noChanges) Get(string) ([]classes.Assignment, bool) { return nil, false }
func (noChanges) Set(string, []classes.Assignment) error  { return nil }
func (noChanges) Forget(string)                           {}
func (noChanges) Keep(func(string) bool)                  {}

// Changed returns a channel that is closed when the reported state changes.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

// notify wakes all watchers. The caller holds mu.
func (s *Store) notify() {
	close(s.watchers)
	s.watchers = make(chan struct{})
}

// Connect records the runtime that the plugin registered with, before Synchronize.
func (s *Store) Connect(info RuntimeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()

	info.Since = s.runtime.Since
	s.runtime = info
	s.notify()
}

// Disconnect records that the runtime is away. Assignments stay as they are.
func (s *Store) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.runtime.Synchronized = false
	s.notify()
}

// Resource returns a configured resource, or a removed one that is kept for its holders.
func (s *Store) Resource(name string) (Resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.resources[name]
	return r, ok
}

// ResourceNames returns the names of all resources, sorted. It includes removed resources that are kept for their holders.
func (s *Store) ResourceNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.resources))
}

// Configured reports whether a resource is in the live configuration.
func (s *Store) Configured(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configured(resource)
}

func (s *Store) configured(resource string) bool {
	_, ok := s.catalog.Lookup(resource)
	return ok
}

// Offered reports whether the class of an assignment is in the live configuration.
func (s *Store) Offered(a classes.Assignment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offered(a)
}

func (s *Store) offered(a classes.Assignment) bool {
	offer, ok := s.catalog.Lookup(a.Resource)
	if !ok {
		return false
	}
	_, ok = offer.Class(a.Class)
	return ok
}

// InUse returns the number of owners that have a class.
func (s *Store) InUse(resource, class string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.InUse(resource, class)
}

// GoLive offers the resources of a configuration that was applied. It keeps removed resources for their holders, and returns
// their names.
func (s *Store) GoLive(files classes.FileSet, next map[string]Resource) (gone []string) {
	offers := make([]classes.Offer, 0, len(files.Config.Resources))
	for _, resource := range files.Config.Resources {
		offers = append(offers, classes.Offer{Resource: resource.Resource, Unavailable: next[resource.Name].Unavailable})
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for name, old := range s.resources {
		now, kept := next[name]
		if !kept {
			now = old
			gone = append(gone, name)
		}
		now.drift = old.drift
		next[name] = now
	}

	s.catalog, s.resources = classes.NewCatalog(offers), next
	s.config = ConfigStatus{Loaded: s.now(), Hash: files.Hash, Files: files.Files, Generation: s.config.Generation + 1}
	s.notify()
	return gone
}

// RejectConfig records why class files could not be made live. A repeated error is not a new event.
func (s *Store) RejectConfig(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if before := s.config.Err; before == nil || before.Error() != err.Error() {
		s.config.Err, s.config.Failed = err, s.now()
		s.notify()
	}
}

// SetAvailability withdraws a resource that is offered, or with nil offers it again. It reports whether that is a change.
func (s *Store) SetAvailability(name string, why *classes.Unavailable) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	r := s.resources[name]
	if r.Unavailable == nil && why == nil || r.Unavailable != nil && why != nil && *r.Unavailable == *why {
		return false
	}

	r.Unavailable = why
	s.resources[name] = r
	offers := slices.Clone(s.catalog.Offers())
	for i := range offers {
		if offers[i].Name == name {
			offers[i].Unavailable = why
		}
	}
	s.catalog = classes.NewCatalog(offers)
	s.notify()
	return true
}
