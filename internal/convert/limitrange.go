// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// limitRangeKind is what a LimitRange with the KEP's fields becomes.
const limitRangeKind = "QOSLimitRange"

// limitItem is an element of the limits of a LimitRange.
type limitItem struct {
	place
	node     *yaml.Node
	scope    string
	qos      entry
	defaults []request
	remarks  remarks
	// mixed items have limits of others.
	mixed bool
}

// limitRange converts a LimitRange to a QOSLimitRange, or where it has other limits too, into both.
func (d *document) limitRange(n *yaml.Node, at place) {
	before := len(d.problems)
	spec := d.mapping(n, "spec", at)
	if spec.value == nil {
		d.fault(at, "has %s, but not in spec.limits; move them there", fieldName)
		return
	}
	limits := d.entry(spec.value, "limits", spec.place)
	if limits.value == nil || limits.value.Kind != yaml.SequenceNode {
		d.fault(spec.place, "must have limits, a list; %s belong into its elements", fieldName)
		return
	}
	var items []limitItem
	for i, element := range limits.value.Content {
		items = append(items, d.limitItem(deref(element), limits.at(element, index(i))))
	}
	d.walkOthers(n, spec.value, at)
	d.checkTypes(items)
	switch {
	case len(d.problems) > before:
	case slices.ContainsFunc(items, func(item limitItem) bool { return item.mixed || len(item.defaults) == 0 }):
		d.planSplit(n, limits, items, at)
	default:
		d.planKind(n, items, at)
	}
}

// checkTypes sees that each type has its defaults in one place, as a QOSLimitRange must.
func (d *document) checkTypes(items []limitItem) {
	seen := map[string]bool{}
	for i := range items {
		item := &items[i]
		if len(item.defaults) == 0 {
			continue
		}
		if seen[item.scope] {
			d.fault(item.qos.place, "type %s has %s here and before; put them together", item.scope, fieldName)
		}
		seen[item.scope] = true
	}
}

// walkOthers finds what is in none of the places in a LimitRange or ResourceQuota that are understood.
func (d *document) walkOthers(n, spec *yaml.Node, at place) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; key != "spec" && key != "status" {
			d.walk(n.Content[i+1], at.at(n.Content[i], "."+key))
		}
	}
	for i := 0; i+1 < len(spec.Content); i += 2 {
		key := spec.Content[i]
		if understood := key.Value == "limits" || key.Value == fieldName; !understood {
			d.walk(spec.Content[i+1], at.at(key, ".spec."+key.Value))
		}
	}
	if key, _ := find(spec, fieldName); key != nil && stringOf(n, "kind") == "LimitRange" {
		d.fault(at.at(key, ".spec."+fieldName), "is not understood here; it belongs into the elements of limits")
	}
}

func (d *document) limitItem(n *yaml.Node, at place) limitItem {
	item := limitItem{place: at, node: n}
	if !isMapping(n) {
		d.fault(at, "must be a mapping, not %s", describe(n))
		return item
	}
	item.qos = d.entry(n, fieldName, at)
	for i := 0; i+1 < len(n.Content); i += 2 {
		item.mixed = item.mixed || n.Content[i].Value != "type" && n.Content[i].Value != fieldName
	}
	if item.qos.key == nil {
		return item
	}
	item.scope = stringOf(n, "type")
	scope := classes.ContainerScope
	switch item.scope {
	case "Container":
	case "Pod":
		scope = ""
	default:
		d.fault(at, "type %s has no %s; write Pod or Container", quote(item.scope), fieldName)
		return item
	}
	item.defaults = d.requests(item.qos, elementFields{class: "default", others: []string{"max"}, pods: "put it under type: Pod"}, scope)
	item.remarks = d.remarks(n, item.qos)
	for _, r := range item.defaults {
		if r.class == classes.SystemDefault {
			d.fault(r.place, "has an empty default; name a class, or remove it")
		}
		if known, ok := d.known.scope(r.resource); ok && item.scope == "Pod" && known != classes.PodScope {
			d.fault(r.place, "%s is for containers, not for pods; put it under type: Container", r.resource)
		}
	}
	return item
}

// planKind makes a QOSLimitRange of a LimitRange where it is.
func (d *document) planKind(n *yaml.Node, items []limitItem, at place) {
	d.plan(at, n, "kind", func() {
		d.setString(valueOf(n, "apiVersion"), classes.APIVersion, false)
		d.setString(valueOf(n, "kind"), limitRangeKind, false)
	})
	for _, item := range items {
		for _, r := range item.defaults {
			if r.name.Value != r.resource {
				d.plan(r.place, r.name, "name "+r.resource, func() { d.setString(r.name, r.resource, false) })
			}
		}
	}
}

// planSplit leaves the limits of others in the LimitRange, and puts a QOSLimitRange behind it.
func (d *document) planSplit(n *yaml.Node, limits entry, items []limitItem, at place) {
	list := d.parentList(n)
	if n != d.root && list == nil {
		d.fault(at, "has other limits too, and it is not clear where a second object could be; move its %s to a LimitRange of their own",
			fieldName)
		return
	}
	for i := range items {
		item := &items[i]
		switch {
		case item.qos.key == nil:
		case item.mixed || len(item.defaults) == 0:
			d.planRemoval(item.qos, item.node, item.remarks.all())
		default:
			element := limits.value.Content[i]
			d.plan(item.place, limits.value, "remove "+index(i), func() { d.removeElement(limits.value, element, item.remarks.all()) })
		}
	}
	if !slices.ContainsFunc(items, func(item limitItem) bool { return len(item.defaults) > 0 }) {
		return
	}
	d.plan(at, n, "follow", func() { d.follows(list, n, d.limitRangeText(n, items)) })
}

// parentList is the list that an object is in.
func (d *document) parentList(n *yaml.Node) *yaml.Node {
	for list := range d.paths {
		if list.Kind == yaml.SequenceNode && slices.Contains(list.Content, n) {
			return list
		}
	}
	return nil
}

// limitRangeText is the QOSLimitRange of a LimitRange, in its style.
func (d *document) limitRangeText(n *yaml.Node, items []limitItem) string {
	key, metadata := find(n, "metadata")
	if isFlow(n) {
		text := `{"apiVersion": "` + classes.APIVersion + `", "kind": "` + limitRangeKind + `"`
		if key != nil {
			text += `, "metadata": ` + string(d.text[d.offset(metadata):d.end(metadata, -1)])
		}
		return text + `, "spec": {"limits": [` + flowItems(items) + `]}}`
	}
	indent := d.newline + strings.Repeat(" ", d.column(d.offset(n.Content[0])))
	text := "apiVersion: " + classes.APIVersion + indent + "kind: " + limitRangeKind + indent
	if key != nil {
		text += string(d.text[d.offset(key):d.lineEnd(d.endOf(key, metadata))]) + indent
	}
	lines := []string{"spec:", "  limits:"}
	for i := range items {
		if len(items[i].defaults) == 0 {
			continue
		}
		lines = append(lines, "  - type: "+items[i].scope, "    "+fieldName+":")
		for _, r := range items[i].defaults {
			lines = append(lines, "    - name: "+r.resource, "      default: "+plainOrQuoted(r.class))
		}
	}
	return text + strings.Join(lines, indent)
}

func flowItems(items []limitItem) string {
	var all []string
	for i := range items {
		if len(items[i].defaults) == 0 {
			continue
		}
		var defaults []string
		for _, r := range items[i].defaults {
			defaults = append(defaults, `{"name": `+strconv.Quote(r.resource)+`, "default": `+strconv.Quote(r.class)+`}`)
		}
		all = append(all, `{"type": "`+items[i].scope+`", "`+fieldName+`": [`+strings.Join(defaults, ", ")+`]}`)
	}
	return strings.Join(all, ", ")
}

// plainOrQuoted is a class name as YAML must have it: some would be read as a number or a truth value.
func plainOrQuoted(name string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Value: name}
	if n.ShortTag() != "!!str" || !isLetter(name[0]) {
		return strconv.Quote(name)
	}
	return name
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
