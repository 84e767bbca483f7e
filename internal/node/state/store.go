// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state stores the resources of this node, the classes that its containers and pods have or request, and the
// refusals of requests. It has one lock and does no I/O.
package state

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Changes stores the classes that were changed after the creation of a container or pod, the claims of volumes, and
// data of backends. After a restart of the plugin, neither the runtime nor the kernel reports these data. Only Set,
// SetClaims and SetMemory do I/O, and Store never calls these methods.
type Changes interface {
	// Get returns the changed assignments of a container or sandbox.
	Get(id string) ([]classes.Assignment, bool)
	// Set replaces the changed assignments of a container or sandbox, and saves them on disk. An empty list removes the ID.
	Set(id string, changed []classes.Assignment) error
	// Forget removes an ID.
	Forget(id string)
	// Keep removes each ID unless live(id) is true.
	Keep(live func(id string) bool)
	// Claims returns the claims of the node's volumes.
	Claims() classes.Claims
	// SetClaims replaces the claims of the node's volumes, and saves them on disk.
	SetClaims(claims classes.Claims) error
	// Memory returns the JSON that the backend of a resource has saved, or nil.
	Memory(resource string) []byte
	// SetMemory replaces the JSON of a backend, and saves it on disk.
	SetMemory(resource string, data []byte) error
}

// Store is the state of the node. It is safe for concurrent use.
type Store struct {
	now     func() time.Time
	changes Changes

	// mu guards the fields below. All hooks of the runtime wait for mu, so no caller does I/O while it holds mu.
	mu        sync.Mutex
	catalog   *classes.Catalog
	claims    []classes.ClaimedVolume
	resources map[string]Resource // by name, including the resources that were removed from the configuration
	ledger    *classes.Ledger
	records   map[string]record // by the ID of the container or sandbox, like the ledger
	sequence  uint64            // the highest number of a record
	runtime   RuntimeInfo
	config    ConfigStatus
	refusals  Refusals
	refused   map[qos.Subject]Refused
	drifts    map[Correction]uint64
	adopted   uint64
	watchers  chan struct{} // closed and replaced at every change
	drained   chan struct{} // receives a value when a holder has left a class that is no longer offered
}

// Resource is the backend of a resource, with the configuration that the backend applied last.
type Resource struct {
	classes.Backend
	Config classes.ResourceConfig
	// Unavailable is the reason why the resource cannot be used on this machine. It is nil if the resource is
	// available.
	Unavailable *classes.Unavailable

	drift driftRecord
}

// New returns a store that offers no classes yet. If now is nil, the store uses time.Now. If changes is nil, the store
// does not save changed classes and claims, so a restart of the plugin loses them.
func New(changes Changes, now func() time.Time) *Store {
	if changes == nil {
		changes = noChanges{}
	}
	if now == nil {
		now = time.Now
	}

	return &Store{
		now: now, changes: changes, claims: changes.Claims().Volumes,
		catalog: classes.NewCatalog(nil), resources: map[string]Resource{}, ledger: classes.NewLedger(), records: map[string]record{},
		refusals: Refusals{}, refused: map[qos.Subject]Refused{}, drifts: map[Correction]uint64{},
		watchers: make(chan struct{}), drained: make(chan struct{}, 1),
	}
}

// Changes returns the store of changed classes that New received.
func (s *Store) Changes() Changes { return s.changes }

type noChanges struct{}

func (noChanges) Get(string) ([]classes.Assignment, bool) { return nil, false }
func (noChanges) Set(string, []classes.Assignment) error  { return nil }
func (noChanges) Forget(string)                           {}
func (noChanges) Keep(func(string) bool)                  {}
func (noChanges) Claims() classes.Claims                  { return classes.Claims{} }
func (noChanges) SetClaims(classes.Claims) error          { return nil }
func (noChanges) Memory(string) []byte                    { return nil }
func (noChanges) SetMemory(string, []byte) error          { return nil }

// Changed returns a channel that is closed when the reported state changes.
func (s *Store) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watchers
}

// Notify wakes all watchers. It must be called when a reported state that is not in the store has changed.
func (s *Store) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notify()
}

// notify wakes all watchers. The caller holds mu.
func (s *Store) notify() {
	close(s.watchers)
	s.watchers = make(chan struct{})
}

// Connect records the runtime with which the plugin has registered. It must be called before Synchronize.
func (s *Store) Connect(info RuntimeInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()

	info.Since, info.SyncFailure = s.runtime.Since, s.runtime.SyncFailure
	s.runtime = info
	s.notify()
}

// SetPlugins records the NRI plugins of the runtime.
func (s *Store) SetPlugins(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime.Plugins = names
	s.notify()
}

// Disconnect records that the plugin is not connected to the runtime. All assignments stay as they are.
func (s *Store) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.runtime.Synchronized = false
	s.notify()
}

// SyncFailed records the reason why the runtime did not synchronize the plugin, or nil if the runtime did.
func (s *Store) SyncFailed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.runtime.SyncFailure = why
	s.notify()
}

// Resource returns a resource of the live configuration, or a resource that was removed from it since the process
// started.
func (s *Store) Resource(name string) (Resource, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.resources[name]
	return r, ok
}

// ResourceNames returns the names of all resources, sorted. It includes the resources that were removed from the
// configuration since the process started.
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

// InUse returns the number of owners that have the given class.
func (s *Store) InUse(resource, class string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.InUse(resource, class)
}

// GoLive offers the resources of class files that were applied. It keeps removed resources, because containers or pods
// may still use them, and returns their names.
func (s *Store) GoLive(files classes.FileSet, next map[string]Resource) (gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.config = ConfigStatus{Loaded: s.now(), Hash: files.Hash, Files: files.Files, Generation: s.config.Generation + 1}
	return s.offer(files.Config, next)
}

// ClaimsGoLive works like GoLive, but is called after a change of the classes of claims. It does not record that class
// files were loaded, because the class files did not change.
func (s *Store) ClaimsGoLive(files classes.FileSet, next map[string]Resource) (gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer(files.Config, next)
}

// offer replaces the resources of the store. The caller holds mu.
func (s *Store) offer(config *classes.Config, next map[string]Resource) (gone []string) {
	offers := make([]classes.Offer, 0, len(config.Resources))
	for _, resource := range config.Resources {
		offers = append(offers, classes.Offer{Resource: resource.Resource, Unavailable: next[resource.Name].Unavailable})
	}

	for name, old := range s.resources {
		now, kept := next[name]
		if !kept {
			now = old
			gone = append(gone, name)
		}
		now.drift = old.drift
		next[name] = now
	}

	s.resources = next
	s.setCatalog(offers)
	s.notify()
	return gone
}

// RejectConfig records why class files were not applied. If the same error is already recorded, RejectConfig changes nothing.
func (s *Store) RejectConfig(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if before := s.config.Err; before == nil || before.Error() != err.Error() {
		s.config.Err, s.config.Failed = err, s.now()
		s.notify()
	}
}

// SetAvailability records the reason why a resource is unavailable, or nil if the resource is available. It reports
// whether the availability changed.
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
	s.setCatalog(offers)
	s.notify()
	return true
}
