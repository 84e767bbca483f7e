// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type request struct {
	place
	// resource is the canonical name of the resource. `class` is empty for a request for the system default.
	resource, class string
	// element has the node of the whole request. `name` has the node with the name of the resource.
	element, name *yaml.Node
}

// elementFields describes the fields of an element of qosResources. They differ between pods, LimitRanges and ResourceQuotas.
type elementFields struct {
	names []string
	// class is the name of the element's field for the class. It is empty if the element has no such field.
	class string
	// pods has the remedy in the error for a container that requests a pod-scope resource.
	pods string
}

func requestFields() elementFields {
	return elementFields{[]string{"name", "class"}, "class", "request it in qosResources of the pod's spec"}
}

// requests reads a qosResources list for resources of the given scope. An empty scope allows both scopes. requests
// reports invalid requests as problems and leaves them out.
func (d *document) requests(e entry, allowed elementFields, scope classes.Scope) []request {
	if e.value != nil && !isList(e.value) {
		d.fault(e.place, "must be a list of %s, not %s", strings.Join(allowed.names, " and "), describe(e.value))
	}

	var all []request
	for i, element := range elements(e.value) {
		r, ok := d.request(element, e.at(element, index(i)), allowed)
		switch {
		case !ok:
		case slices.ContainsFunc(all, func(other request) bool { return other.resource == r.resource }):
			d.fault(r.place, "resource %s is requested twice; keep one class", r.resource)
		case d.run.Known.scopeOf(r.resource) == classes.VolumeScope:
			d.fault(r.place, "%s is for volumes, which have no %s; request it in annotation %sCONTAINER as PATH=CLASS",
				r.resource, fieldName, classes.VolumeKeyPrefix)
		case scope == classes.ContainerScope && d.run.Known.scopeOf(r.resource) == classes.PodScope:
			d.fault(r.place, "%s is for pods, not for containers; %s", r.resource, allowed.pods)
		default:
			all = append(all, r)
		}
	}
	return all
}

func (d *document) request(n *yaml.Node, at place, allowed elementFields) (request, bool) {
	before := len(d.problems)
	r := request{place: at, element: n}
	if d.checkFields(n, at, allowed.names) {
		r.name = d.scalar(n, "name", at)
		r.resource = d.canonical(r.name.Value)
		if allowed.class != "" && (valueOf(n, "max") == nil || contains(n, allowed.class)) {
			r.class = d.scalar(n, allowed.class, at).Value
		}
	}
	return r, len(d.problems) == before && d.checkNames(&r)
}

// checkFields reports whether an element is a mapping without unknown fields.
func (f *file) checkFields(n *yaml.Node, at place, known []string) bool {
	names := strings.Join(known, " and ")
	if !isMapping(n) {
		f.fault(at, "must be a mapping with %s, not %s", names, describe(n))
		return false
	}

	before := len(f.problems)
	for key := range fields(n) {
		if !slices.Contains(known, key.Value) {
			f.fault(at.at(key, ""), "unknown field %s; the known fields are %s", quote(key.Value), names)
		}
	}
	return len(f.problems) == before
}

// scalar returns the value of a required field of an element. If the field is missing or invalid, it returns an empty node.
func (d *document) scalar(n *yaml.Node, name string, at place) *yaml.Node {
	before := len(d.problems)
	e := d.entry(n, name, at)
	switch {
	case len(d.problems) > before:
	case e.value == nil && name == "class":
		d.fault(at, `has no class; write one, or class: "" for the system default`)
	case e.value == nil:
		d.fault(at, "has no %s; write one", name)
	case e.value.Kind != yaml.ScalarNode:
		d.fault(e.place, "must be a string, not %s", describe(e.value))
	default:
		return e.value
	}
	return &yaml.Node{}
}

// canonical returns the full name of a resource. The KEP's examples use names without a domain, but this program
// requires the domain.
func (f *file) canonical(name string) string {
	full := classes.CanonicalResource(name)
	if name == "" || strings.Contains(full, "/") {
		return full
	}

	full = withDomain(name)
	if classes.ValidateResourceName(full) == nil {
		f.note("resource %s has no domain, but Kubernetes requires one here; the name becomes %s", name, full)
	}
	return full
}

func (f *file) checkNames(r *request) bool {
	problem := f.run.Known.check(r.resource, r.class)
	if r.class != classes.SystemDefault {
		if _, err := classes.ExtendedResource(r.resource, r.class); err != nil {
			problem = err.Error() + "; use another name"
		}
		if err := classes.ValidateClassName(r.class); err != nil {
			problem = fmt.Sprintf("class %s: %v", quote(r.class), err)
		}
	}
	if err := classes.ValidateResourceName(r.resource); err != nil {
		problem = fmt.Sprintf("name %s: %v", quote(r.resource), err)
	}

	if problem != "" {
		f.fault(r.place, "%s", problem)
	}
	return problem == ""
}

func extended(resource, class string) string {
	name, _ := classes.ExtendedResource(resource, class)
	return name
}
