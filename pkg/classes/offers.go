// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "slices"

// Offer is a configured resource as this node has it.
type Offer struct {
	Resource
	// Unavailable is not nil when this machine does not have the resource: its classes can be asked for in vain only.
	Unavailable *Unavailable
}

// Class finds a class of the resource by name.
func (r *Resource) Class(name string) (Class, bool) {
	for _, class := range r.Classes {
		if class.Name == name {
			return class, true
		}
	}
	return Class{}, false
}

// Catalog is what a node offers. It is immutable and safe for concurrent use.
type Catalog struct {
	offers []Offer
	// index has canonical names.
	index    map[string]int
	families [2]family
	// What who asks for nothing gets.
	containerDefaults, podDefaults []Assignment
}

// NewCatalog makes the catalog of offers, which have distinct canonical names. It keeps the slices inside of them.
func NewCatalog(offers []Offer) *Catalog {
	c := &Catalog{offers: slices.Clone(offers), index: make(map[string]int, len(offers))}
	for i := range c.offers {
		offer := &c.offers[i]
		c.index[offer.Name] = i
		if offer.Scope == PodScope {
			c.podDefaults = append(c.podDefaults, offer.Default())
		} else {
			c.containerDefaults = append(c.containerDefaults, offer.Default())
		}
	}
	c.families = [2]family{c.family("rdt"), c.family("blockio")}
	c.podDefaults, c.containerDefaults = slices.Clip(c.podDefaults), slices.Clip(c.containerDefaults)
	return c
}

// Default is the assignment of who asks for nothing. An unavailable resource has no default: nothing can enforce it.
func (o *Offer) Default() Assignment {
	if o.DefaultClass == SystemDefault || o.Unavailable != nil {
		return Assignment{Resource: o.Name}
	}
	return Assignment{Resource: o.Name, Class: o.DefaultClass, Source: SourceDefault}
}

// Offers has every configured resource, in the order of the class files. It is read-only.
func (c *Catalog) Offers() []Offer { return slices.Clip(c.offers) }

// Lookup finds a resource by its canonical or short name. The offer is read-only.
func (c *Catalog) Lookup(name string) (*Offer, bool) {
	i, ok := c.index[CanonicalResource(name)]
	if !ok {
		return nil, false
	}
	return &c.offers[i], true
}
