// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxCapacity bounds what is listed as devices to the kubelet, one a slot, in one message.
const maxCapacity = 100_000

func (p *parser) readResource(d *document, e entry) {
	known := append([]string{"name", "scope", "defaultClass", "onClassRemoved", "classes"}, p.kindFields()...)
	fields := d.mapping(e, known)
	if fields == nil {
		return
	}
	r := &draft{document: d, name: fields["name"], defaultClass: fields["defaultClass"], indexes: map[string]int{}}
	r.File, r.Line = d.file, e.line
	r.readName(e)
	r.readScope(fields)
	r.readDefault()
	r.readRemoval(fields)
	p.readBackend(r, e, fields)
	if classes, ok := fields["classes"]; ok {
		r.readClasses(classes)
	} else {
		r.offerAll()
	}
	r.checkClasses()
	p.resources = append(p.resources, r)
}

func (r *draft) readName(e entry) {
	if r.name.node == nil {
		r.document.fault(e.line, e.at.field("name"), "is missing; write name: and a name like %s or vendor.example/my-qos", RDTResource)
		return
	}
	name, ok := r.document.text(r.name)
	if !ok {
		return
	}
	r.Name = CanonicalResource(name)
	if err := ValidateResourceName(r.Name); err != nil {
		r.document.fault(r.name.line, r.name.at, "%s cannot be the name of a resource: %v", quote(name), err)
		r.Name = ""
	}
}

func (r *draft) readScope(fields map[string]entry) {
	r.Scope = ContainerScope
	e, ok := fields["scope"]
	if !ok {
		return
	}
	scope, ok := r.document.text(e)
	if ok && scope != string(ContainerScope) && scope != string(PodScope) {
		r.document.fault(e.line, e.at, "is %s; write %s or %s", quote(scope), ContainerScope, PodScope)
		return
	}
	if ok {
		r.Scope = Scope(scope)
	}
	if r.Scope == PodScope && (r.Name == RDTResource || r.Name == BlockIOResource) {
		r.document.fault(e.line, e.at, "%s is in container scope by its definition; leave the scope out, or give a resource of pods "+
			"a name of its own, like %s/pod-%s", r.Name, Domain, strings.TrimPrefix(r.Name, officialDomain+"/"))
	}
}

func (r *draft) readDefault() {
	if r.defaultClass.node != nil {
		r.DefaultClass, _ = r.document.text(r.defaultClass)
	}
}

func (r *draft) readRemoval(fields map[string]entry) {
	r.OnClassRemoved = Drain
	e, ok := fields["onClassRemoved"]
	if !ok {
		return
	}
	removal, ok := r.document.text(e)
	switch {
	case !ok: // noted already
	case removal != string(Drain) && removal != string(Evict):
		r.document.fault(e.line, e.at, "is %s; write %s or %s", quote(removal), Drain, Evict)
	default:
		r.OnClassRemoved = Removal(removal)
	}
}

func (r *draft) readClasses(e entry) {
	all := r.document.elements(e)
	if e.node.Kind == yaml.SequenceNode && len(all) == 0 {
		r.document.fault(e.line, e.at, "has no class; leave it out to offer every class of the backend")
	}
	for _, class := range all {
		r.readClass(class)
	}
}

func (r *draft) readClass(e entry) {
	fields := r.document.mapping(e, []string{"name", "capacity", "description"})
	if fields == nil {
		return
	}
	var class Class
	if capacity, ok := fields["capacity"]; ok {
		class.Capacity = r.document.capacity(capacity)
	}
	if description, ok := fields["description"]; ok {
		class.Description, _ = r.document.text(description)
	}
	name, ok := fields["name"]
	if !ok {
		r.document.fault(e.line, e.at.field("name"), "is missing; a class needs one")
		return
	}
	if class.Name, ok = r.document.text(name); ok {
		r.addClass(class, name)
	}
}

// addClass adds a class if its name can be one, and is new.
func (r *draft) addClass(class Class, place entry) {
	if err := ValidateClassName(class.Name); err != nil {
		r.document.fault(place.line, place.at, "%s cannot be the name of a class: %v", quote(class.Name), err)
		return
	}
	if i, seen := r.indexes[class.Name]; seen {
		r.document.fault(place.line, place.at, "class %s is listed already, in line %d", quote(class.Name), r.classes[i].line)
		return
	}
	r.indexes[class.Name] = len(r.Classes)
	r.Classes, r.classes = append(r.Classes, class), append(r.classes, place)
}

// offerAll offers every class of the backend, unlimited.
func (r *draft) offerAll() {
	if r.Backend == nil {
		return
	}
	for _, name := range r.Backend.ClassNames() {
		if _, seen := r.indexes[name]; !seen {
			r.addClass(Class{Name: name}, r.section)
		}
	}
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func (d *document) capacity(e entry) uint64 {
	value := e.node.Value
	isInt := e.node.Kind == yaml.ScalarNode && e.node.ShortTag() == "!!int"
	switch {
	case isInt && strings.HasPrefix(value, "-"):
		d.fault(e.line, e.at, "must not be negative; write 0 or leave it out for unlimited")
		return 0
	case e.node.Kind != yaml.ScalarNode || !wholeNumber.MatchString(value) || e.node.ShortTag() == "!!str":
		d.fault(e.line, e.at, "must be a whole number like 4, not %s; leave it out for unlimited", describe(e.node))
		return 0
	}
	capacity, err := strconv.ParseUint(value, 10, 64)
	if err != nil || capacity > maxCapacity {
		d.fault(e.line, e.at, "must not be more than %d; write 0 or leave it out for unlimited", maxCapacity)
		return 0
	}
	return capacity
}
