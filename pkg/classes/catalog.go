// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes defines QoS-class resources: their names, class files and requests, and the interface of the backends that
// enforce classes. The package follows KEP-3008 and does no I/O.
package classes

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
)

// Scope is the kind of object to which a resource assigns classes. Each resource has one scope.
type Scope string

const (
	// ContainerScope is the scope of resources that assign a class to each container.
	ContainerScope Scope = "container"
	// PodScope is the scope of resources that assign one class to the whole pod.
	PodScope Scope = "pod"
	// VolumeScope is the scope of resources that assign a class to each volume of a container.
	VolumeScope Scope = "volume"
)

// SystemDefault is the class of containers and pods on which no class is enforced (KEP-3008, "Implicit defaults").
const SystemDefault = ""

// Removal is the policy for a class that is removed from the class files while containers, pods or volumes have it.
type Removal string

const (
	// Drain keeps the class until all its containers, pods and volumes have ended. It is the default.
	Drain Removal = "drain"
	// Evict evicts the pods that requested the class.
	Evict Removal = "evict"
)

// Class is one class of a resource.
type Class struct {
	Name string
	// Capacity is the maximum number of simultaneous assignments on this node. 0 means unlimited.
	Capacity    uint64
	Description string
}

// Resource is one QoS-class resource with its classes, as this node offers it.
type Resource struct {
	// Name is a qualified name, e.g. "k8s.io/rdt".
	Name  string
	Scope Scope
	// Mutable is true if the class of a running container or pod can be changed.
	Mutable bool
	// DefaultClass is assigned to containers or pods that request nothing. It is SystemDefault if the resource has no default.
	DefaultClass string
	// Rules assign classes to containers or pods that request nothing. The first rule that matches wins. If none matches, DefaultClass applies.
	Rules []Rule
	// RuntimeHandlers has the runtime handlers whose pods can have classes of the resource. nil means all handlers.
	// Pods without a RuntimeClass can always have classes.
	RuntimeHandlers []string
	// OnClassRemoved is the policy for containers, pods or volumes that requested a class, if this class is removed.
	// Containers and pods that got the class only because it was the default get the new default class.
	OnClassRemoved Removal
	// FromClaims is true if only PersistentVolumeClaims request the classes of the resource. They do not come from a class file.
	FromClaims bool
	// Classes has the classes in the order of the class file.
	Classes []Class
}

// Class returns the class that has this name.
func (r *Resource) Class(name string) (Class, bool) {
	i := slices.IndexFunc(r.Classes, func(class Class) bool { return class.Name == name })
	if i < 0 {
		return Class{}, false
	}
	return r.Classes[i], true
}

// KernelSharingHandlers returns the runtime handlers that are known to run containers on the node's own kernel. A handler has the
// name that the administrator of the node has given to it, so these are common names.
func KernelSharingHandlers() []string {
	return []string{"runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy", "high-performance"}
}

// Serves reports whether pods of a runtime handler can have classes of the resource.
func (r *Resource) Serves(handler string) bool {
	return handler == "" || r.RuntimeHandlers == nil || slices.Contains(r.RuntimeHandlers, handler)
}

// Offer is a configured resource, with its availability on this node.
type Offer struct {
	Resource
	// Unavailable is nil if this machine has the resource. Otherwise, requests for classes of the resource are refused.
	Unavailable *Unavailable
}

// Default returns the assignment of a holder that requests nothing. An unavailable resource has no default, because its classes cannot be
// enforced.
func (o *Offer) Default(h *Holder) Assignment {
	switch {
	case o.DefaultClass == SystemDefault && len(o.Rules) == 0 || o.Unavailable != nil:
		return Assignment{Resource: o.Name}
	case !o.Serves(h.RuntimeHandler):
		return Assignment{Resource: o.Name, Source: SourceRuntimeHandler}
	}

	for i := range o.Rules {
		if rule := &o.Rules[i]; rule.Matches(h) {
			return Assignment{Resource: o.Name, Class: rule.Class, Source: SourceRule, Key: rule.Name}
		}
	}
	if o.DefaultClass == SystemDefault {
		return Assignment{Resource: o.Name}
	}
	return Assignment{Resource: o.Name, Class: o.DefaultClass, Source: SourceDefault}
}

// Catalog has the resources that a node offers. It is immutable and safe for concurrent use.
type Catalog struct {
	offers []Offer
	// place is the part of errors that says where the resources are offered, e.g. "on this node".
	place string
	// index maps the canonical name of a resource to the position of its offer in offers.
	index    map[string]int
	families [2]family
	// claims maps each container to its volumes whose PersistentVolumeClaims request a class.
	claims map[qos.Subject][]ClaimedVolume
	// defaults has the assignments of each scope that apply if nothing is requested. They are for pods that have no
	// RuntimeClass and match no rule. `hasRules` is true if a resource has rules.
	defaults map[Scope][]Assignment
	hasRules bool
}

// NewCatalog makes the catalog of offers. The offers must have distinct canonical names. The catalog does not copy the
// slices inside of the offers, so the caller must not change them.
func NewCatalog(offers []Offer) *Catalog {
	c := &Catalog{
		offers: slices.Clone(offers), place: "on this node", index: make(map[string]int, len(offers)), families: families(),
		defaults: map[Scope][]Assignment{},
	}
	for i := range c.offers {
		offer := &c.offers[i]
		c.index[offer.Name] = i
		c.hasRules = c.hasRules || len(offer.Rules) > 0
		c.defaults[offer.Scope] = append(c.defaults[offer.Scope], offer.Default(&Holder{}))
	}

	for i := range c.families {
		f := &c.families[i]
		if offer, ok := c.index[f.resource]; ok && c.offers[offer].Scope == ContainerScope {
			f.offer = offer
		}
	}
	return c
}

// defaultsOf returns the assignments that apply if a holder of the scope requests nothing. The result is read-only.
func (c *Catalog) defaultsOf(h *Holder, scope Scope) []Assignment {
	shared := slices.Clip(c.defaults[scope])
	if h.RuntimeHandler == "" && !c.hasRules {
		return shared
	}

	own := slices.Clone(shared)
	for i := range own {
		own[i] = c.offers[c.index[own[i].Resource]].Default(h)
	}
	return own
}

// With returns a catalog that also offers these resources, with their classes. If the catalog already has a resource,
// With adds the classes to it.
func (c *Catalog) With(resources []Resource) *Catalog {
	if len(resources) == 0 {
		return c
	}

	offers := slices.Clone(c.offers)
	for _, more := range resources {
		i := slices.IndexFunc(offers, func(o Offer) bool { return o.Name == more.Name })
		if i < 0 {
			offers = append(offers, Offer{Resource: more})
			continue
		}
		known := offers[i].Resource
		added := slices.DeleteFunc(slices.Clone(more.Classes), func(class Class) bool { _, has := known.Class(class.Name); return has })
		offers[i].Classes = slices.Concat(known.Classes, added)
	}
	with := NewCatalog(offers)
	with.place, with.claims = c.place, c.claims
	return with
}

// At returns a copy of the catalog whose errors name another place than "on this node", e.g. "on node-1".
func (c *Catalog) At(place string) *Catalog {
	with := *c
	with.place = place
	return &with
}

// Offers returns every configured resource, in the order of the class files. The result is read-only.
func (c *Catalog) Offers() []Offer { return slices.Clip(c.offers) }

// Lookup returns the offer of a resource by its canonical or short name. The offer is read-only.
func (c *Catalog) Lookup(name string) (*Offer, bool) {
	i, ok := c.index[CanonicalResource(name)]
	if !ok {
		return nil, false
	}
	return &c.offers[i], true
}
