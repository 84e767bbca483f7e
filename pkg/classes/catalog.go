// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes has QoS-class resources: their names, class files and requests, and the ledger of their holders. It follows
// KEP-3008 and does no I/O.
package classes

import "slices"

// Scope is the kind of object that has a class of a resource. A resource has one scope.
type Scope string

const (
	// ContainerScope is the scope of resources with a class for each container.
	ContainerScope Scope = "container"
	// PodScope is the scope of resources with one class for the whole pod.
	PodScope Scope = "pod"
)

// SystemDefault is the class of containers and pods on which no class is enforced (KEP-3008, "Implicit defaults").
const SystemDefault = ""

// Removal is what happens to holders that requested a class when the class is removed from the class files.
type Removal string

const (
	// Drain keeps the class for its holders until they end. It is the default.
	Drain Removal = "drain"
	// Evict evicts the pods of its holders.
	Evict Removal = "evict"
)

// Class is one class of a resource.
type Class struct {
	Name string
	// Capacity is the maximum of simultaneous assignments on this node; 0 is unlimited.
	Capacity    uint64
	Description string
}

// Resource is one type of QoS with its classes, as offered on this node.
type Resource struct {
	// Name is qualified, e.g. "k8s.io/rdt".
	Name  string
	Scope Scope
	// Mutable is true when the class of a running container or pod can be changed.
	Mutable bool
	// DefaultClass is assigned where nothing is requested; SystemDefault without one.
	DefaultClass string
	// OnClassRemoved applies to holders that requested their class. Holders of the default class follow the default.
	OnClassRemoved Removal
	// Classes are in the order of the class file.
	Classes []Class
}

// Class returns the class with a name.
func (r *Resource) Class(name string) (Class, bool) {
	i := slices.IndexFunc(r.Classes, func(class Class) bool { return class.Name == name })
	if i < 0 {
		return Class{}, false
	}
	return r.Classes[i], true
}

// Offer is a configured resource, with its availability on this node.
type Offer struct {
	Resource
	// Unavailable is not nil when this machine does not have the resource. Requests for its classes are refused then.
	Unavailable *Unavailable
}

// Default returns the assignment if nothing is requested. An unavailable resource has no default, because it cannot be enforced.
func (o *Offer) Default() Assignment {
	if o.DefaultClass == SystemDefault || o.Unavailable != nil {
		return Assignment{Resource: o.Name}
	}
	return Assignment{Resource: o.Name, Class: o.DefaultClass, Source: SourceDefault}
}

// Catalog is what a node offers. It is immutable and safe for concurrent use.
type Catalog struct {
	offers []Offer
	// index is by canonical name.
	index    map[string]int
	families [2]family
	// containerDefaults and podDefaults are the assignments if nothing is requested.
	containerDefaults, podDefaults []Assignment
}

// NewCatalog makes the catalog of offers, which have distinct canonical names. It keeps the slices inside of them.
func NewCatalog(offers []Offer) *Catalog {
	c := &Catalog{offers: slices.Clone(offers), index: make(map[string]int, len(offers)), families: families()}
	for i := range c.offers {
		offer := &c.offers[i]
		c.index[offer.Name] = i
		if offer.Scope == PodScope {
			c.podDefaults = append(c.podDefaults, offer.Default())
		} else {
			c.containerDefaults = append(c.containerDefaults, offer.Default())
		}
	}

	for i := range c.families {
		f := &c.families[i]
		if offer, ok := c.index[f.resource]; ok && c.offers[offer].Scope != PodScope {
			f.offer = offer
		}
	}
	c.podDefaults, c.containerDefaults = slices.Clip(c.podDefaults), slices.Clip(c.containerDefaults)
	return c
}

// Offers returns every configured resource, in the order of the class files. It is read-only.
func (c *Catalog) Offers() []Offer { return slices.Clip(c.offers) }

// Lookup returns the offer of a resource by its canonical or short name. The offer is read-only.
func (c *Catalog) Lookup(name string) (*Offer, bool) {
	i, ok := c.index[CanonicalResource(name)]
	if !ok {
		return nil, false
	}
	return &c.offers[i], true
}
