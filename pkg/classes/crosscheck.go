// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"cmp"
	"fmt"
	"slices"
)

// maxClasses is the maximum number of classes of a node. It limits the memory of the shim, which has a device plugin for each class, and
// the size of the NodeQOSResources object.
const maxClasses = 256

// checkClasses reports classes that the resource offers, but that are not configured in its backend's section. It also
// reports default classes and classes of rules that do not exist or that have a capacity.
func (r *draft) checkClasses(defaultClass *Field) {
	if r.Backend == nil {
		return
	}
	configured := map[string]bool{}
	for _, name := range r.Backend.ClassNames() {
		configured[name] = true
	}

	for _, class := range r.Classes {
		if !configured[class.Name] && !r.kind.AnyClass {
			r.classes[class.Name].Report("class %s is not configured under %s; available: %s",
				quote(class.Name), r.Kind, list(r.Backend.ClassNames()))
		}
	}

	if r.kind.AnyClass && len(r.Classes) == 0 {
		r.section.Report("has no classes; list the resource's classes in its field classes, e.g. classes: [{name: gold, capacity: 2}]")
		return
	}
	if r.DefaultClass != SystemDefault {
		r.checkUnlimited(defaultClass, r.DefaultClass, "a default class")
	}
	r.checkRules()
}

// checkUnlimited reports a class that holders get without a request, if it does not exist or has a capacity.
func (r *draft) checkUnlimited(f *Field, name, what string) {
	class, ok := r.Class(name)
	switch {
	case !ok:
		f.Report("there is no class %s; available: %s%s", quote(name), list(r.classNames()), Suggestion(name, r.classNames()))
	case class.Capacity > 0:
		f.Report("class %s has capacity %d, but %s must be unlimited, because containers without a request are never refused",
			quote(class.Name), class.Capacity, what)
	}
}

func (r *draft) place() string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

// crossCheck reports resources that contradict each other, e.g. two resources with the same name, even in different files.
func (p *parser) crossCheck() {
	names, singles, extended, ofNode := map[string]*draft{}, map[string]*draft{}, map[string]*draft{}, map[string]*draft{}
	setters := map[Scope]map[Setting]*draft{ContainerScope: {}, PodScope: {}}
	for _, r := range p.resources {
		if r.kind != nil && r.kind.Single {
			r.checkSingle(singles)
		}
		if slices.ContainsFunc(p.kinds, func(k Kind) bool { return k.Claims != nil && k.Claims.Resource == r.Name }) {
			r.name.Report("%s is reserved for the classes of PersistentVolumeClaims; use another name", r.Name)
		}
		if r.Name != "" && r.checkName(names) {
			r.checkExtended(extended)
		}
		if seen := setters[r.Scope]; seen != nil {
			r.checkSettings(seen)
		}
		r.checkNode(ofNode)
	}
	p.checkNumber()
}

// checkNumber reports the first class that is one too many for a node.
func (p *parser) checkNumber() {
	number := 0
	for _, r := range p.resources {
		for _, class := range r.Classes {
			if number++; number > maxClasses {
				r.classes[class.Name].Report("class %s is one too many: a node can have at most %d classes", quote(class.Name), maxClasses)
				return
			}
		}
	}
}

func (r *draft) checkSingle(seen map[string]*draft) {
	key, what := r.Kind, "one resource"
	if len(r.kind.Scopes) > 1 {
		key, what = r.Kind+" "+string(r.Scope), fmt.Sprintf("one resource of %s scope", r.Scope)
	}

	if first := seen[key]; first != nil {
		r.section.Report("only %s on a node can have this field; %s at %s already has it", what, cmp.Or(first.Name, "another"), first.place())
		return
	}
	seen[key] = r
}

// checkSettings reports a setting that another resource of the same scope sets, too.
func (r *draft) checkSettings(seen map[Setting]*draft) {
	setter, ok := r.Backend.(Setter)
	if !ok {
		return
	}
	for _, setting := range setter.Sets() {
		if first := seen[setting]; first != nil && (first.Kind != r.Kind || !r.kind.Single) { // checkSingle reports two of a Single kind
			r.section.Report("sets %s, and so does %s at %s; let only one resource set it", setting, cmp.Or(first.Name, "another resource"), first.place())
			return
		}
		seen[setting] = r
	}
}

// checkNode reports a setting of the node that another resource has, too.
func (r *draft) checkNode(seen map[string]*draft) {
	setter, ok := r.Backend.(NodeSetter)
	if !ok {
		return
	}
	for _, setting := range setter.SetsOfNode() {
		if first := seen[setting]; first != nil {
			r.section.Report("has %s, and so does %s at %s; let only one resource have them", setting, cmp.Or(first.Name, "another resource"), first.place())
			return
		}
		seen[setting] = r
	}
}

// checkName returns true if the name of a resource is new. Otherwise it reports the problem and returns false.
func (r *draft) checkName(seen map[string]*draft) bool {
	first := seen[r.Name]
	switch {
	case first == nil:
		seen[r.Name] = r
		return true
	case first.Scope != r.Scope:
		r.name.Report("%s is already defined at %s in scope %s; use a name in only one scope", r.Name, first.place(), first.Scope)
	default:
		r.name.Report("%s is already defined at %s; put all of its classes there", r.Name, first.place())
	}
	return false
}

// checkExtended reports classes that would get an invalid extended resource name, or the name that another class
// already has.
func (r *draft) checkExtended(seen map[string]*draft) {
	for _, class := range r.Classes {
		field := r.classes[class.Name]
		name, err := ExtendedResource(r.Name, class.Name)
		if err != nil {
			field.Report("class %s cannot be offered to Kubernetes: %v", quote(class.Name), err)
			continue
		}
		if first := seen[name]; first != nil {
			field.Report("class %s would get the extended resource %s, but a class of %s at %s has it already; rename one of the two classes",
				quote(class.Name), name, first.Name, first.place())
			continue
		}
		seen[name] = r
	}
}
