// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// request is an element of a qosResources list.
type request struct {
	place
	// resource is canonical, and class a field of the element that was asked for: the empty one is the system default.
	resource, class string
	// element is all of it, name where the resource was named.
	element, name *yaml.Node
}

// remark has the comments of an element: on lines before it, in its lines, and on lines behind it.
type remark struct{ head, tail, behind []string }

// field of an extended resource with its comments.
func (r remark) field(key string) field {
	return field{key: key, kind: numberField, value: "1", head: r.head, tail: strings.Join(r.tail, " ")}
}

func (r remark) all() []string { return slices.Concat(r.head, r.tail, r.behind) }

// names of the fields of an element, as a kind has them.
type elementFields struct {
	// class is the field with the class, which must be there unless it has no name; others are known too.
	class  string
	others []string
	// pods is where resources of pods belong.
	pods string
}

// requestFields are those of requests in a pod's spec.
func requestFields() elementFields {
	return elementFields{class: "class", pods: "ask for it in qosResources of the pod's spec"}
}

func (f elementFields) known() string {
	return strings.Join(slices.DeleteFunc(append([]string{"name", f.class}, f.others...), func(s string) bool { return s == "" }), " and ")
}

// requests reads a qosResources list of the given scope, which is empty where both may be. It returns what is right.
func (d *document) requests(e entry, fields elementFields, scope classes.Scope) []request {
	list := e.value
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		d.fault(e.place, "must be a list of %s, not %s", fields.known(), describe(list))
		return nil
	}
	var all []request
	for i, element := range list.Content {
		r, ok := d.request(element, e.at(element, index(i)), fields)
		if !ok {
			continue
		}
		switch known, ok := d.known.scope(r.resource); {
		case slices.ContainsFunc(all, func(other request) bool { return other.resource == r.resource }):
			d.fault(r.place, "resource %s is asked for twice; keep one class", r.resource)
		case ok && scope == classes.ContainerScope && known == classes.PodScope:
			d.fault(r.place, "%s is for pods, not for containers; %s", r.resource, fields.pods)
		default:
			all = append(all, r)
		}
	}
	return all
}

func (d *document) request(element *yaml.Node, at place, fields elementFields) (request, bool) {
	n := deref(element)
	if !isMapping(n) {
		d.fault(at, "must be a mapping with %s, not %s", fields.known(), describe(n))
		return request{}, false
	}
	before := len(d.problems)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Value == "max" && slices.Contains(fields.others, "max") {
			d.fault(at.at(key, ".max"), "there is no such limit; use a ResourceQuota, which counts for a namespace")
		}
		if key.Value != "name" && key.Value != fields.class && !slices.Contains(fields.others, key.Value) {
			d.fault(at.at(key, ""), "unknown field %s; known are %s", quote(key.Value), fields.known())
		}
	}
	if len(d.problems) > before {
		return request{}, false
	}
	resource, class := d.scalar(n, "name", at), &yaml.Node{}
	if fields.class != "" {
		class = d.scalar(n, fields.class, at)
	}
	if len(d.problems) > before {
		return request{}, false
	}
	r := request{place: at, resource: d.canonical(resource.Value), class: class.Value, element: n, name: resource}
	return r, d.checkNames(&r)
}

// scalar is a field of an element that must be there.
func (d *document) scalar(n *yaml.Node, name string, at place) *yaml.Node {
	before := len(d.problems)
	e := d.entry(n, name, at)
	switch {
	case len(d.problems) > before:
	case (e.key == nil || e.value == nil) && name == "class":
		d.fault(at, `has no class; write one, or class: "" for the system default`)
	case e.key == nil || e.value == nil:
		d.fault(at, "has no %s; write one", name)
	case e.value.Kind != yaml.ScalarNode:
		d.fault(e.place, "must be a string, not %s", describe(e.value))
	default:
		return e.value
	}
	return &yaml.Node{}
}

// canonical is the full name of a resource. Those in the KEP's own examples have no domain, which ours need.
func (d *document) canonical(name string) string {
	full := classes.CanonicalResource(name)
	if name == "" || strings.Contains(full, "/") {
		return full
	}
	full = classes.Domain + "/" + name
	if classes.ValidateResourceName(full) == nil {
		d.note("resource %s has no domain, which names need here: it becomes %s", name, full)
	}
	return full
}

func (d *document) checkNames(r *request) bool {
	if err := classes.ValidateResourceName(r.resource); err != nil {
		d.fault(r.place, "name %s: %v", quote(r.resource), err)
		return false
	}
	if r.class != classes.SystemDefault {
		if err := classes.ValidateClassName(r.class); err != nil {
			d.fault(r.place, "class %s: %v", quote(r.class), err)
			return false
		}
		if _, err := classes.ExtendedResource(r.resource, r.class); err != nil {
			d.fault(r.place, "%v; use another name", err)
			return false
		}
	}
	if problem := d.known.check(r.resource, r.class); problem != "" {
		d.fault(r.place, "%s", problem)
		return false
	}
	return true
}

// extended is the extended resource of a class whose names were checked.
func extended(resource, class string) string {
	name, _ := classes.ExtendedResource(resource, class)
	return name
}
