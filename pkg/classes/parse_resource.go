// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// maxCapacity is the highest capacity of a class. It limits the size of the device plugin's ListAndWatch response,
// which has one device for each slot.
const maxCapacity = 100_000

func (p *parser) readResource(f *Field) {
	known := append([]string{"name", "scope", "defaultClass", "match", "onClassRemoved", "runtimeHandlers", "classes"}, p.kindFields()...)
	fields := f.ExactFields(known...)
	if fields == nil {
		return
	}

	r := &draft{field: f, name: fields["name"], classes: map[string]*Field{}}
	r.File, r.Line = f.File(), f.line
	r.readName()
	r.readScope(fields["scope"])
	r.DefaultClass, _ = fields["defaultClass"].Text()
	if r.Scope == VolumeScope && r.DefaultClass != SystemDefault {
		fields["defaultClass"].Report("must be omitted: volumes have only the classes that pods request")
		r.DefaultClass = SystemDefault
	}
	r.OnClassRemoved = oneOf(fields["onClassRemoved"], Drain, Evict)
	p.readBackend(r, fields)
	r.readHandlers(fields["runtimeHandlers"])
	r.readRules(fields["match"])
	if classes := fields["classes"]; classes != nil {
		r.readClasses(classes)
	} else {
		r.offerAll()
	}
	r.checkClasses(fields["defaultClass"])
	p.resources = append(p.resources, r)
}

// oneOf returns the text of a field, which must be one of the values. If the field is missing, oneOf returns the first value.
func oneOf[T ~string](f *Field, values ...T) T {
	text, ok := f.Text()
	if !ok {
		return values[0]
	}
	if slices.Contains(values, T(text)) {
		return T(text)
	}

	names := make([]string, len(values))
	for i, value := range values {
		names[i] = string(value)
	}
	f.Report("is %s; write %s", quote(text), strings.Join(names, " or "))
	return values[0]
}

func (r *draft) readName() {
	if r.name == nil {
		r.field.reportMissing("name", "is missing; add a name such as %s or vendor.example/my-qos", RDTResource)
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
	r.Scope = oneOf(f, ContainerScope, PodScope, VolumeScope)
	if r.Scope != ContainerScope && (r.Name == RDTResource || r.Name == BlockIOResource) {
		f.Report("%s is always in container scope; omit the scope, or use another name for a resource of pods, like %s/pod-%s",
			r.Name, Domain, strings.TrimPrefix(r.Name, officialDomain+"/"))
	}
}

// readHandlers reads the runtime handlers whose pods can have classes of the resource.
func (r *draft) readHandlers(f *Field) {
	if f == nil {
		if r.kind != nil && !r.kind.AnyHandler {
			r.RuntimeHandlers = KernelSharingHandlers()
		}
		return
	}

	handlers := f.filled("has no handler; add one, or omit the field to allow all handlers that share the node's kernel")
	r.RuntimeHandlers = make([]string, 0, len(handlers))
	for _, handler := range handlers {
		name, ok := handler.Text()
		switch {
		case !ok:
		case len(content.IsDNS1123Label(name)) > 0:
			handler.Report("%s cannot be a runtime handler; write the field handler of a RuntimeClass, e.g. runc", quote(name))
		default:
			r.RuntimeHandlers = append(r.RuntimeHandlers, name)
		}
	}
}

func (r *draft) readClasses(f *Field) {
	for _, class := range f.filled("has no class; omit the field to offer every class of the backend") {
		r.readClass(class)
	}
}

func (r *draft) readClass(f *Field) {
	fields := f.ExactFields("name", "capacity", "description")
	if fields == nil {
		return
	}

	class := Class{Capacity: readCapacity(fields["capacity"])}
	class.Description, _ = fields["description"].Text()
	name := fields["name"]
	if name == nil {
		f.reportMissing("name", "is missing; give the class a name")
		return
	}
	var ok bool
	if class.Name, ok = name.Text(); ok {
		r.addClass(class, name)
	}
}

// addClass adds a class if its name is valid and new. `f` is the field that defines the class.
func (r *draft) addClass(class Class, f *Field) {
	if err := ValidateClassName(class.Name); err != nil {
		f.Report("%s cannot be the name of a class: %v", quote(class.Name), err)
		return
	}
	if first := r.classes[class.Name]; first != nil {
		f.Report("class %s is already listed in line %d", quote(class.Name), first.line)
		return
	}

	r.Classes = append(r.Classes, class)
	r.classes[class.Name] = f
}

// offerAll adds the classes that the backend's configuration has, but the resource's list of classes lacks. Their
// capacity is unlimited.
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
	capacity, err := strconv.ParseUint(text, 10, 64)
	switch {
	case tag == "!!int" && strings.HasPrefix(text, "-"):
		f.Report("must not be negative; 0 means unlimited")
	case !f.IsScalar() || tag == "!!str" || !wholeNumber.MatchString(text):
		f.Report("must be a whole number like 4, not %s; omit the field for unlimited", f.describe())
	case err != nil || capacity > maxCapacity:
		f.Report("must not be more than %d; 0 means unlimited", maxCapacity)
	default:
		return capacity
	}
	return 0
}

// readBackend finds the one field of a resource that configures its backend, and reads this field.
func (p *parser) readBackend(r *draft, fields map[string]*Field) {
	var found []string
	for i := range p.kinds {
		kind := &p.kinds[i]
		if section := fields[kind.Field]; section != nil {
			found = append(found, kind.Field)
			r.kind, r.Kind, r.section = kind, kind.Field, section
		}
	}

	switch len(found) {
	case 0:
		r.field.Report("has no backend; add one of the fields %s", strings.Join(p.kindFields(), ", "))
	case 1:
		r.Mutable = r.kind.Mutable
		p.checkKind(r)
		r.readSection()
	default:
		r.section.Report("is not the only backend: the resource has %s; write one resource for each backend", strings.Join(found, " and "))
		r.kind = nil
	}
}

func (p *parser) checkKind(r *draft) {
	if !slices.Contains(r.kind.Scopes, r.Scope) {
		scopes := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.kind.Scopes), " ", " or "), "[]")
		r.section.Report("cannot be in scope %s; %s can be in scope %s", r.Scope, r.Kind, scopes)
	}
	official, isOfficial := strings.CutPrefix(r.Name, officialDomain+"/")
	if isOfficial && official != r.Kind && slices.Contains(p.kindFields(), official) {
		r.section.Report("cannot be the backend of %s; use the field %s, or another resource name", r.Name, official)
	}
}

func (r *draft) readSection() {
	if !r.section.isMapping() {
		r.section.Report("must be a mapping with the configuration of %s, not %s", r.Kind, r.section.describe())
		return
	}
	if file := r.section.child("configFile"); file != nil {
		r.readConfigFile(file)
		return
	}

	r.parse(r.section)
}

// parse reads the configuration of the backend, in the class file or in a file of its own.
func (r *draft) parse(section *Field) {
	before := section.document.count()
	if config := r.kind.Parse(section, r.Scope); section.document.count() == before {
		r.Backend = config
	}
}

func (r *draft) readConfigFile(f *Field) {
	if len(r.section.children) > 1 {
		f.Report("cannot be combined with other fields; put all of the configuration into the file")
		return
	}
	if top := f.Load(); top != nil {
		r.ConfigFile = top.File()
		r.parse(top)
	}
}
