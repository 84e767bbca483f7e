// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Offering is the live configuration with its backends: what the node offers. It is a value that is replaced as a whole;
// nobody modifies its map.
type Offering struct {
	Catalog *classes.Catalog
	// Resources has the resources by name, including those that were removed from the configuration since the process started.
	Resources map[string]Resource
	Config    ConfigStatus
}

// Resource is the backend of a resource, with the configuration that the backend applied last.
type Resource struct {
	classes.Backend
	Config classes.ResourceConfig
	// Unavailable is the reason why the resource cannot be used on this machine. It is nil if the resource is
	// available.
	Unavailable *classes.Unavailable
	// ValuesSince is the time at which the section of the resource in the class files last changed.
	ValuesSince time.Time

	// Drift is the drift that was found on this machine.
	Drift Drift
}

// Promiser returns the backend as a classes.Promiser. `ok` is false if the backend is not a Promiser, or if the
// resource is unavailable.
func (r Resource) Promiser() (promiser classes.Promiser, ok bool) {
	promiser, ok = r.Backend.(classes.Promiser)
	return promiser, ok && r.Unavailable == nil
}

// Names returns the names of all resources, sorted.
func (o Offering) Names() []string { return slices.Sorted(maps.Keys(o.Resources)) }

// Configured reports whether a resource is in the live configuration.
func (o Offering) Configured(resource string) bool {
	_, ok := o.Catalog.Lookup(resource)
	return ok
}

// Drains reports whether the class of an assignment was removed from the live configuration.
func (o Offering) Drains(a classes.Assignment) bool {
	if a.Class == classes.SystemDefault {
		return false
	}
	offer, ok := o.Catalog.Lookup(a.Resource)
	if !ok {
		return true
	}
	_, ok = offer.Class(a.Class)
	return !ok
}

// corrections returns the counters of drift corrections.
func (o Offering) corrections() map[Correction]uint64 {
	all := map[Correction]uint64{}
	for name, r := range o.Resources {
		for kind, count := range r.Drift.corrections {
			all[Correction{name, kind}] = count
		}
	}
	return all
}

// with returns a copy in which a resource is replaced.
func (o Offering) with(name string, resource Resource) Offering {
	o.Resources = maps.Clone(o.Resources)
	o.Resources[name] = resource
	return o
}

// Live returns the live configuration.
func (s *View) Live() Offering {
	defer s.lock()()
	return s.node.live
}

// GoLive offers the applied resources of class files and of claims. It keeps removed resources, because containers or
// pods may still use them, and returns their names. `loaded` is false if only the classes of claims have changed. The
// status then keeps the time at which the class files were loaded.
func (s *Store) GoLive(files classes.FileSet, next map[string]Resource, loaded bool) (gone []string) {
	defer s.lock()()
	n := &s.node
	if loaded {
		n.live.Config = ConfigStatus{Loaded: n.now(), Hash: files.Hash, Files: files.Files, Generation: n.live.Config.Generation + 1}
	}
	return n.offer(files.Config, next)
}

// offer replaces the resources of the node.
func (n *node) offer(config *classes.Config, next map[string]Resource) (gone []string) {
	offers := make([]classes.Offer, 0, len(config.Resources))
	for _, resource := range config.Resources {
		offers = append(offers, classes.Offer{Resource: resource.Resource, Unavailable: next[resource.Name].Unavailable})
	}

	next = maps.Clone(next)
	for name, now := range next {
		now.ValuesSince = n.now()
		next[name] = now
	}
	for name, old := range n.live.Resources {
		now, kept := next[name]
		if !kept {
			now = old
			gone = append(gone, name)
		}
		if reflect.DeepEqual(now.Config.Backend, old.Config.Backend) {
			now.ValuesSince = old.ValuesSince
		}
		now.Drift = old.Drift
		next[name] = now
	}

	n.live.Resources = next
	n.setRemoved(offers)
	n.setCatalog(offers)
	n.endReports()
	n.changed = true
	return gone
}

// setRemoved updates the capacity of each removed class. It is the last capacity, or the number of slots in use if that
// is higher. It is called before the offers replace those of the live catalog.
func (n *node) setRemoved(offers []classes.Offer) {
	for _, offer := range n.live.Catalog.Offers() {
		for _, class := range offer.Classes {
			if class.Capacity > 0 {
				n.removed[slot{offer.Name, class.Name}] = max(class.Capacity, uint64(n.table.InUse(offer.Name, class.Name))) //nolint:gosec // it is a length
			}
		}
	}
	for _, offer := range offers {
		for _, class := range offer.Classes {
			delete(n.removed, slot{offer.Name, class.Name})
		}
	}
}

// RejectConfig records why class files were not applied. If the same error is already recorded, RejectConfig changes nothing.
func (s *Store) RejectConfig(err error) {
	defer s.lock()()

	config := &s.node.live.Config
	if before := config.Err; before == nil || before.Error() != err.Error() {
		config.Err, config.Failed = err, s.node.now()
		s.node.changed = true
	}
}

// UpdateResource changes what the store knows about a resource, e.g. whether the resource is available. The function
// `change` must not call methods of the store.
func (s *Store) UpdateResource(name string, change func(*Resource)) {
	defer s.lock()()
	n := &s.node

	before := n.live.Resources[name]
	after := before
	change(&after)
	n.live = n.live.with(name, after)
	n.changed = true
	if before.Unavailable == after.Unavailable {
		return
	}

	offers := slices.Clone(n.live.Catalog.Offers())
	for i := range offers {
		if offers[i].Name == name {
			offers[i].Unavailable = after.Unavailable
		}
	}
	n.setCatalog(offers)
}
