// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxCapacity bounds the devices that the kubelet gets in one message, one for each slot.
const maxCapacity = 100_000

func (p *parser) readResource(f *Field) {
	known := append([]string{"name", "scope", "defaultClass", "onClassRemoved", "classes"}, p.kindFields()...)
	fields := f.exactFields(known...)
	if fields == nil {
		return
	}

	r := &draft{field: f, name: fields["name"], classes: map[string]*Field{}}
	r.File, r.Line = f.File(), f.line
	r.readName()
	r.readScope(fields["scope"])
	r.DefaultClass, _ = fields["defaultClass"].Text()
	r.OnClassRemoved = oneOf(fields["onClassRemoved"], Drain, Evict)
	p.readBackend(r, fields)
	if classes := fields["classes"]; classes != nil {
		r.readClasses(classes)
	} else {
		r.offerAll()
	}
	r.checkClasses(fields["defaultClass"])
	p.resources = append(p.resources, r)
}

// oneOf reads a field with one of two values; the first is the default.
func oneOf[T ~string](f *Field, first, second T) T {
	text, ok := f.Text()
	switch value := T(text); {
	case !ok:
		return first
	case value == first, value == second:
		return value
	}
	f.Report("is %s; write %s or %s", quote(text), first, second)
	return first
}

func (r *draft) readName() {
	if r.name == nil {
		r.field.reportMissing("name", "is missing; write name: and a name like %s or vendor.example/my-qos", RDTResource)
		return
	}
	name, ok := r.name.Text()
	if !ok {
		return
	}

	r.Name = CanonicalResource(name)
	if err := ValidateResourceName(r.Name); err != nil {
		r.name.Report("%s cannot be the name of a resource: %v", quote(name), err)
		r.Name = ""
	}
}

func (r *draft) readScope(f *Field) {
	r.Scope = oneOf(f, ContainerScope, PodScope)
	if r.Scope == PodScope && (r.Name == RDTResource || r.Name == BlockIOResource) {
		f.Report("%s is in container scope by its definition; leave the scope out, or give a resource of pods "+
			"a name of its own, like %s/pod-%s", r.Name, Domain, strings.TrimPrefix(r.Name, officialDomain+"/"))
	}
}

func (r *draft) readClasses(f *Field) {
	classes := f.elements()
	if f.IsList() && len(classes) == 0 {
		f.Report("has no class; leave it out to offer every class of the backend")
	}
	for _, class := range classes {
		r.readClass(class)
	}
}

func (r *draft) readClass(f *Field) {
	fields := f.exactFields("name", "capacity", "description")
	if fields == nil {
		return
	}

	class := Class{Capacity: readCapacity(fields["capacity"])}
	class.Description, _ = fields["description"].Text()
	name := fields["name"]
	if name == nil {
		f.reportMissing("name", "is missing; a class needs one")
		return
	}
	var ok bool
	if class.Name, ok = name.Text(); ok {
		r.addClass(class, name)
	}
}

// addClass adds a class, defined by a field, if its name is valid and new.
func (r *draft) addClass(class Class, f *Field) {
	if err := ValidateClassName(class.Name); err != nil {
		f.Report("%s cannot be the name of a class: %v", quote(class.Name), err)
		return
	}
	if first := r.classes[class.Name]; first != nil {
		f.Report("class %s is listed already, in line %d", quote(class.Name), first.line)
		return
	}

	r.Classes = append(r.Classes, class)
	r.classes[class.Name] = f
}

// offerAll offers every class of the backend, unlimited.
func (r *draft) offerAll() {
	if r.Backend == nil {
		return
	}
	for _, name := range r.Backend.ClassNames() {
		if r.classes[name] == nil {
			r.addClass(Class{Name: name}, r.section)
		}
	}
}

var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func readCapacity(f *Field) uint64 {
	if f == nil {
		return 0
	}

	text, tag := f.node.Value, f.node.ShortTag()
	switch {
	case tag == "!!int" && strings.HasPrefix(text, "-"):
		f.Report("must not be negative; write 0 or leave it out for unlimited")
		return 0
	case f.node.Kind != yaml.ScalarNode || tag == "!!str" || !wholeNumber.MatchString(text):
		f.Report("must be a whole number like 4, not %s; leave it out for unlimited", f.describe())
		return 0
	}

	capacity, err := strconv.ParseUint(text, 10, 64)
	if err != nil || capacity > maxCapacity {
		f.Report("must not be more than %d; write 0 or leave it out for unlimited", maxCapacity)
		return 0
	}
	return capacity
}
