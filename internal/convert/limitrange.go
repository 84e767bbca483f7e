// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

type limitItem struct {
	place
	node     *yaml.Node
	kind     string
	qos      entry
	defaults []request
	// stays is true if the item must stay in the LimitRange, because it has limits of other resources, or none of classes.
	stays bool
}

// limitRange plans the conversion of a LimitRange to a QOSLimitRange. If the LimitRange also has other limits, the
// result is both a LimitRange and a QOSLimitRange.
func (d *document) limitRange(n *yaml.Node, at place) {
	before := len(d.problems)
	spec := d.mapping(n, "spec", at)
	if spec.value == nil {
		d.fault(at, "has %s outside spec.limits; move them into spec.limits", fieldName)
		return
	}
	d.refuseField(spec.value, spec.place, "the elements of limits")
	limits := d.list(spec.value, "limits", spec.place, "limits")

	var items []limitItem
	for i, element := range elements(limits.value) {
		items = append(items, d.limitItem(element, limits.at(element, index(i))))
	}
	d.walkFields(n, at)
	d.checkTypes(items)
	if len(d.problems) > before || !slices.ContainsFunc(items, func(item limitItem) bool { return item.qos.key != nil }) {
		return
	}

	if !slices.ContainsFunc(items, func(item limitItem) bool { return item.stays }) {
		d.later(func() { becomeQOSLimitRange(n, items) })
		return
	}
	if n != d.content() && d.lists[n] == nil {
		d.fault(at, "has %[1]s and other limits, but only a document or an item of a List can be split in two; move %[1]s to a separate LimitRange", fieldName)
	}
	d.later(func() { d.splitLimitRange(at, limits.value, items) })
}

func (d *document) limitItem(n *yaml.Node, at place) limitItem {
	item := limitItem{place: at, node: n, kind: stringOf(n, "type"), stays: true}
	if !isMapping(n) {
		d.fault(at, "must be a mapping, not %s", describe(n))
		return item
	}
	item.qos = d.entry(n, fieldName, at)
	if item.qos.key == nil {
		return item
	}
	if d.run.Claims && item.kind == "Container" {
		d.fault(item.qos.place, "a container would get a default beside the class of its claim, and claims cannot request a class with a maximum; "+
			"convert without --claims")
	}
	scope := classes.ContainerScope
	switch item.kind {
	case "Container":
	case "Pod":
		scope = ""
	default:
		d.fault(at, "type %s cannot have %s; use type Pod or Container", quote(item.kind), fieldName)
		return item
	}

	item.defaults = d.requests(item.qos, elementFields{[]string{"name", "default", "max"}, "default", "put it under type: Pod"}, scope)
	for _, r := range item.defaults {
		if r.class == classes.SystemDefault && contains(r.element, "default") {
			d.fault(r.place, "has an empty default; write a class, or remove the default")
		}
		d.checkMaximum(r)
		if item.kind == "Pod" && d.run.Known.scopeOf(r.resource) == classes.ContainerScope {
			d.fault(r.place, "%s is for containers, not for pods; put it under type: Container", r.resource)
		}
	}
	item.stays = len(item.defaults) == 0
	for key := range fields(n) {
		item.stays = item.stays || key.Value != "type" && key.Value != fieldName
	}
	return item
}

// checkMaximum checks the field max of an element of a LimitRange. The conversion does not change this field, because a
// QOSLimitRange has it in the same form.
func (d *document) checkMaximum(r request) {
	list := d.list(r.element, "max", r.place, "name and capacity")
	for i, n := range elements(list.value) {
		at := list.at(n, index(i))
		if !d.checkFields(n, at, []string{"name", "capacity"}) {
			continue
		}
		d.checkNames(&request{place: at, resource: r.resource, class: d.scalar(n, "name", at).Value})
		e := d.entry(n, "capacity", at)
		if e.value == nil {
			d.fault(at, "has no capacity; write one, or 0 to forbid the class")
		} else if capacity, err := strconv.ParseInt(e.value.Value, 10, 64); err != nil || capacity < 0 {
			d.fault(e.place, "must be a number of at least 0, not %s", describe(e.value))
		}
	}
}

func (d *document) checkTypes(items []limitItem) {
	seen := map[string]bool{}
	for _, item := range items {
		if len(item.defaults) > 0 && seen[item.kind] {
			d.fault(item.qos.place, "type %s has %s in more than one item; put them into one item", item.kind, fieldName)
		}
		seen[item.kind] = seen[item.kind] || len(item.defaults) > 0
	}
}

func becomeQOSLimitRange(n *yaml.Node, items []limitItem) {
	setText(valueOf(n, "apiVersion"), classes.APIVersion)
	setText(valueOf(n, "kind"), v1alpha1.LimitRangeKind)
	for _, item := range items {
		item.setNames()
	}
}

func (i *limitItem) setNames() {
	for _, r := range i.defaults {
		setText(r.name, r.resource)
	}
}

// splitLimitRange moves the defaults and limits of classes to a new QOSLimitRange. The other limits stay in the LimitRange.
func (d *document) splitLimitRange(at place, limits *yaml.Node, items []limitItem) {
	moved := newList()
	for _, item := range items {
		item.setNames()
		switch {
		case item.qos.key == nil:
		case len(item.defaults) == 0:
			removeField(item.node, item.qos, nil, commentsOf(item.qos.key, item.qos.node).all())
		case item.stays:
			removeField(item.node, item.qos, nil, "")
			second := newMapping(field{key: "type", value: newText(item.kind)})
			second.Content = append(second.Content, item.qos.key, item.qos.node)
			moved.Content = append(moved.Content, second)
		default:
			remove(limits, slices.Index(limits.Content, item.node), 1, "")
			moved.Content = append(moved.Content, item.node)
		}
	}
	if len(moved.Content) > 0 {
		d.addObject(newQOSLimitRange(at.apiObject, moved), at)
	}
}

func newQOSLimitRange(n, limits *yaml.Node) *yaml.Node {
	object := newMapping(field{key: "apiVersion", value: newText(classes.APIVersion)}, field{key: "kind", value: newText(v1alpha1.LimitRangeKind)})
	if key, metadata := find(n, "metadata"); key != nil {
		object.Content = append(object.Content, yaml.CopyYNode(key), yaml.CopyYNode(metadata))
	}
	addFields(object, field{key: "spec", value: newMapping(field{key: "limits", value: limits})})
	object.Style = n.Style
	return object
}
