// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// adjustment merges the adjustments of the backends for the classes of a new holder.
func (o Offering) adjustment(held classes.Holding) (all classes.Adjustment, _ error) {
	for _, a := range held.Assignments {
		if a.Class == classes.SystemDefault {
			continue
		}
		one, err := o.Resources[a.Resource].Adjust(held.Holder, classes.SystemDefault, a.Class)
		if err != nil {
			return nil, fmt.Errorf("class %q of %s: %w", a.Class, a.Resource, err)
		}
		all = all.Merge(one)
	}
	return all, nil
}

// changesOf returns the assignments that an update requests. It returns an error if the class of a requested resource
// cannot be changed.
func (o Offering) changesOf(h classes.Holding, requests map[string]string) ([]classes.Assignment, error) {
	scope := h.Scope()
	var changes []classes.Assignment
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		class := requests[name]
		offer, ok := o.Catalog.Lookup(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: %q; this node has %s", classes.ErrUnknownResource, name, o.resourceList())
		case offer.Scope != scope:
			return nil, fmt.Errorf("%s is for %ss, not for %ss: %w", offer.Name, offer.Scope, scope, classes.ErrBadRequest)
		case !offer.Mutable:
			return nil, fmt.Errorf("%s: %w", offer.Name, ErrImmutable)
		case class != classes.SystemDefault && offer.Unavailable != nil:
			return nil, fmt.Errorf("%s: %w: %w", offer.Name, classes.ErrUnavailable, offer.Unavailable)
		case class != classes.SystemDefault && !offer.Serves(h.RuntimeHandler):
			return nil, fmt.Errorf("%s: %w: %q is not among the resource's runtimeHandlers", offer.Name, classes.ErrRuntimeHandler, h.RuntimeHandler)
		}
		if err := checkMutable(o.Resources[offer.Name].Backend, h.Holder, offer.Name, h.Class(offer.Name), class); err != nil {
			return nil, err
		}
		changes = append(changes, classes.Assignment{Resource: offer.Name, Class: class, Source: classes.SourceUpdate})
	}
	return changes, nil
}

func (o Offering) resourceList() string {
	offers := o.Catalog.Offers()
	names := make([]string, 0, len(offers))
	for _, offer := range offers {
		names = append(names, offer.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// defaults returns the default assignments for the resources that a holder did not request.
func (o Offering) defaults(h classes.Holding) []classes.Assignment {
	requested := func(resource string) bool {
		i := slices.IndexFunc(h.Assignments, func(a classes.Assignment) bool { return a.Resource == resource })
		return i >= 0 && h.Assignments[i].IsRequested()
	}

	var now []classes.Assignment
	for _, offer := range o.Catalog.Offers() {
		if offer.Scope == h.Scope() && offer.Scope != classes.VolumeScope && !requested(offer.Name) {
			now = append(now, offer.Default(&h.Holder))
		}
	}
	for _, a := range h.Assignments {
		if a.IsDefault() && !o.Configured(a.Resource) {
			now = append(now, classes.Assignment{Resource: a.Resource}) // the default of a removed resource ends at once, instead of draining
		}
	}
	return now
}

// withResourcesOf returns the assignments. For each resource that has a class only in `has`, it adds the
// system default, so that the holder leaves that class. It skips resources that no backend can enforce.
func (o Offering) withResourcesOf(assignments, has []classes.Assignment) []classes.Assignment {
	all := slices.Clone(assignments)
	for _, a := range withoutResourcesOf(has, assignments) {
		if _, enforceable := o.Resources[a.Resource]; enforceable {
			all = append(all, classes.Assignment{Resource: a.Resource})
		}
	}
	return all
}

// recordedClasses returns the classes of a container with a RecordAnnotation: the classes `has` of its creation, and
// the current defaults. The defaults of its creation follow the configuration (KEP-3008, "Implicit defaults").
func (o Offering) recordedClasses(h classes.Holder, has []classes.Assignment) []classes.Assignment {
	wanted, err := o.Catalog.Resolve(h)
	if err != nil {
		return has
	}
	return classes.Overlay(wanted, slices.DeleteFunc(slices.Clone(has), classes.Assignment.IsDefault))
}
