// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "fmt"

// checkClasses compares the classes of a resource with those of its backend, and with its default.
func (r *draft) checkClasses() {
	if r.Backend == nil {
		return
	}
	configured := map[string]bool{}
	for _, name := range r.Backend.ClassNames() {
		configured[name] = true
	}
	for i, class := range r.Classes {
		if !configured[class.Name] {
			r.document.fault(r.classes[i].line, r.classes[i].at, "class %s is not configured under %s; configured are %s",
				quote(class.Name), r.Kind, list(r.Backend.ClassNames()))
		}
	}
	if r.DefaultClass == SystemDefault {
		return
	}
	e := r.defaultClass
	i, ok := r.indexes[r.DefaultClass]
	if !ok {
		offer := Offer{Resource: r.Resource}
		r.document.fault(e.line, e.at, "there is no class %s; available are %s", quote(r.DefaultClass), offer.classNames())
		return
	}
	if class := r.Classes[i]; class.Capacity > 0 {
		r.document.fault(e.line, e.at,
			"class %s has capacity %d, but a default must be unlimited: what asks for nothing is never refused", quote(class.Name), class.Capacity)
	}
}

func (r *draft) place() string { return fmt.Sprintf("%s:%d", r.File, r.Line) }

// crossCheck looks for resources that collide with each other, also over files.
func (p *parser) crossCheck() {
	names, singles := map[string]*draft{}, map[string]*draft{}
	extended := map[string]*draft{}
	for _, r := range p.resources {
		if r.kind != nil && r.kind.Single {
			r.checkSingle(singles)
		}
		if r.Name == "" {
			continue
		}
		if r.checkName(names) {
			r.checkExtended(extended)
		}
	}
}

func (r *draft) checkSingle(seen map[string]*draft) {
	key, what := r.Kind, "one resource of a node"
	if len(r.kind.Scopes) > 1 {
		key, what = r.Kind+" "+string(r.Scope), fmt.Sprintf("one resource of %s scope of a node", r.Scope)
	}
	if first := seen[key]; first != nil {
		r.document.fault(r.section.line, r.section.at, "can back %s, and %s, at %s, has it", what, first.called(), first.place())
		return
	}
	seen[key] = r
}

func (r *draft) called() string {
	if r.Name == "" {
		return "another"
	}
	return r.Name
}

// checkName is false for a resource that is there already.
func (r *draft) checkName(seen map[string]*draft) bool {
	first := seen[r.Name]
	if first == nil {
		seen[r.Name] = r
		return true
	}
	if first.Scope != r.Scope {
		r.document.fault(r.name.line, r.name.at, "%s is defined already, at %s, in scope %s; a name is used in one scope only",
			r.Name, first.place(), first.Scope)
	} else {
		r.document.fault(r.name.line, r.name.at, "%s is defined already, at %s; put all of its classes there",
			r.Name, first.place())
	}
	return false
}

// checkExtended sees to it that the extended resource of each class is allowed, and no other's.
func (r *draft) checkExtended(seen map[string]*draft) {
	for i, class := range r.Classes {
		line, at := r.classes[i].line, r.classes[i].at
		name, err := ExtendedResource(r.Name, class.Name)
		if err != nil {
			r.document.fault(line, at, "class %s cannot be offered to Kubernetes: %v", quote(class.Name), err)
			continue
		}
		if first := seen[name]; first != nil {
			r.document.fault(line, at,
				"class %s would be the extended resource %s, which a class of %s, at %s, is already; rename one of them",
				quote(class.Name), name, first.Name, first.place())
			continue
		}
		seen[name] = r
	}
}
