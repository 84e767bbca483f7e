// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package state stores the resources of this node, the classes that its containers and pods have or request, and the
// refusals of requests. It has one lock and does no I/O. A holder is a container, pod or volume. A qos.Subject names it
// without its ID, so a restarted container is a new holder of the same subject. The originals of a container are the
// values that its classes have replaced (classes.Spec).
package state

import (
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Changes stores the classes that were changed after the creation of a container or pod, the originals of containers, and other data by
// name. After a restart of the plugin, neither the runtime nor the kernel reports these data. Only Set, SetOriginals and SetMemory do
// I/O, and Store never calls these methods.
type Changes interface {
	// Get returns the changed assignments of a container or sandbox.
	Get(id string) ([]classes.Assignment, bool)
	// Set replaces the changed assignments of a container or sandbox, and saves them on disk. An empty list removes the ID.
	Set(id string, changed []classes.Assignment) error
	// Originals returns the originals of a container (classes.Spec), if they were saved.
	Originals(id string) (classes.Adjustment, bool)
	// SetOriginals replaces the originals of a container, and saves them on disk.
	SetOriginals(id string, originals classes.Adjustment) error
	// Forget removes an ID.
	Forget(id string)
	// Keep removes each ID unless live(id) is true.
	Keep(live func(id string) bool)
	// Memory returns the JSON that was saved, by key.
	Memory() map[string][]byte
	// SetMemory replaces the JSON of the keys in the map, and saves it on disk. nil removes a key.
	SetMemory(changed map[string][]byte) error
}

// MemoryOf returns the memory that is saved with the changes.
func MemoryOf(changes Changes) classes.Memory { return memory{changes} }

type memory struct{ changes Changes }

func (m memory) Load() map[string][]byte { return m.changes.Memory() }

func (m memory) Save(changed map[string][]byte) error { return m.changes.SetMemory(changed) }

// Store is the state of the node. It is safe for concurrent use: each method locks the node, calls the node's functions,
// and unlocks it.
type Store struct{ View }

// View has the methods of a Store that change nothing.
type View struct {
	// mu guards the fields below. All hooks of the runtime wait for mu, so no caller does I/O while it holds mu.
	mu       sync.Mutex
	node     node
	watchers chan struct{} // closed and replaced at every change
	drained  chan struct{} // receives a value when a holder has left a class that is no longer offered
}

// node is the state that a View guards.
type node struct {
	now     func() time.Time
	changes Changes

	live   Offering
	claims []classes.ClaimedVolume
	table  *ledger
	// sequence is the highest number of a Holding.
	sequence uint64
	kept     kept
	// `removed` has the capacities of removed classes. It lacks unlimited classes, and those that were removed before
	// the process began.
	removed map[slot]uint64
	refused refusalLog
	runtime RuntimeInfo
	held    map[string]map[string]classes.Condition
	adopted uint64

	// Since the node was locked: `changed` is true if a reported state has changed, and `released` is true if a class
	// that is no longer offered has lost a holder.
	changed, released bool
}

// New returns a store that offers no classes yet. `changes` can be NoChanges() if the node may lose changed classes and
// claims at a restart.
func New(changes Changes, now func() time.Time) *Store {
	return &Store{View{
		node: node{
			now: now, changes: changes,
			live:  Offering{Catalog: classes.NewCatalog(nil), Resources: map[string]Resource{}},
			table: newLedger(), kept: kept{}, removed: map[slot]uint64{}, refused: newRefusalLog(now),
		},
		watchers: make(chan struct{}), drained: make(chan struct{}, 1),
	}}
}

// NoChanges returns Changes that store nothing.
func NoChanges() Changes { return noChanges{} }

type noChanges struct{}

func (noChanges) Get(string) ([]classes.Assignment, bool)       { return nil, false }
func (noChanges) Set(string, []classes.Assignment) error        { return nil }
func (noChanges) Originals(string) (classes.Adjustment, bool)   { return nil, false }
func (noChanges) SetOriginals(string, classes.Adjustment) error { return nil }
func (noChanges) Forget(string)                                 {}
func (noChanges) Keep(func(string) bool)                        {}
func (noChanges) Memory() map[string][]byte                     { return nil }
func (noChanges) SetMemory(map[string][]byte) error             { return nil }

// lock locks the node. The function that it returns unlocks the node, and signals what has changed.
func (s *View) lock() (unlock func()) {
	s.mu.Lock()
	return func() {
		if s.node.changed {
			close(s.watchers)
			s.watchers = make(chan struct{})
		}
		if s.node.released {
			select {
			case s.drained <- struct{}{}:
			default: // a signal is already waiting in the channel
			}
		}
		s.node.changed, s.node.released = false, false
		s.mu.Unlock()
	}
}

// Changed returns a channel that is closed when the reported state changes.
func (s *View) Changed() <-chan struct{} {
	defer s.lock()()
	return s.watchers
}

// Notify wakes all watchers. It must be called when a reported state that is not in the store has changed.
func (s *Store) Notify() {
	defer s.lock()()
	s.node.changed = true
}

// Drained returns a channel that receives a value when a holder has left a class that is no longer offered.
func (s *View) Drained() <-chan struct{} { return s.drained }

// Get returns a holder by its ID.
func (s *View) Get(id string) (Holding, bool) {
	defer s.lock()()
	return s.node.table.Get(id)
}

// Where returns the holders for which the function `selected` returns true, sorted by pod, container and ID. It copies no
// other holder. The function must not call methods of the store, and must not change or keep the holders that it gets.
func (s *View) Where(selected func(*Holding) bool) []Holding {
	defer s.lock()()
	return s.node.table.Where(selected)
}

// InPod works like Where for the holders of a pod.
func (s *View) InPod(podUID string, selected func(*Holding) bool) []Holding {
	defer s.lock()()
	return s.node.table.InGroup(group{podUID: podUID}, selected)
}

// Modify changes a holder. An unknown ID is not an error. The function `change` must not call methods of the store, and
// must not change the ID or the subject of the holder.
func (s *Store) Modify(id string, change func(*Holding)) {
	defer s.lock()()
	s.node.update(id, change)
}

// UpdateRuntime changes what the store knows about the runtime and the connection to it.
func (s *Store) UpdateRuntime(change func(*RuntimeInfo)) {
	defer s.lock()()
	change(&s.node.runtime)
	s.node.changed = true
}

// Runtime returns what the store knows about the runtime and the connection to it.
func (s *View) Runtime() RuntimeInfo {
	defer s.lock()()
	return s.node.runtime
}
