// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// planChanges plans what was decided.
func (p *pod) planChanges() {
	for _, c := range p.containers {
		if c.qos.key != nil || len(c.add) > 0 {
			p.planContainer(c)
		}
	}
	if p.qos.key != nil {
		comments := p.remarks.all()
		p.planRemoval(p.qos, p.spec, comments)
	}
	if len(p.ask) > 0 {
		p.planAnnotations()
	}
}

func (d *document) planRemoval(e entry, m *yaml.Node, comments []string) {
	d.plan(e.place, m, "remove "+e.key.Value, func() { d.removeField(m, e.key, comments) })
}

// planContainer puts extended resources into the limits of a container.
func (p *pod) planContainer(c *container) {
	d, resources := p.document, c.resources.value
	if c.limits.value != nil && isFlow(c.limits.value) {
		c.add, c.left = uncommented(c.add, c.left)
	}
	comments := slices.Concat(c.remarks.key.all(), c.left)
	limits := field{key: "limits", fields: c.add}
	if c.limits.key == nil && c.qos.key != nil && len(c.add) > 0 {
		limits.head, limits.tail = slices.Concat(c.remarks.key.head, c.left), strings.Join(c.remarks.key.tail, " ")
		d.plan(c.qos.place, resources, "replace by "+names(c.add), func() { d.replaceField(resources, c.qos.key, limits) })
		return
	}
	if len(c.add) > 0 {
		p.planLimits(c, limits)
	}
	if c.qos.key != nil {
		d.planRemoval(c.qos, resources, comments)
	}
}

// planLimits adds to limits, and makes what is missing down to them.
func (p *pod) planLimits(c *container, limits field) {
	d, what := p.document, "add "+names(c.add)
	resources := field{key: "resources", fields: []field{limits}}
	switch {
	case c.limits.value != nil:
		d.plan(c.limits.place, c.limits.value, what, func() { d.addFields(c.limits.value, c.add) })
	case c.limits.key != nil:
		d.plan(c.limits.place, c.resources.value, what, func() { d.fill(c.resources.value, c.limits.key, c.add) })
	case c.resources.value != nil:
		d.plan(c.resources.place, c.resources.value, what, func() { d.addFields(c.resources.value, []field{limits}) })
	case c.resources.key != nil:
		d.plan(c.resources.place, c.node, what, func() { d.fill(c.node, c.resources.key, []field{limits}) })
	default:
		d.plan(c.place, c.node, what, func() { d.addFields(c.node, []field{resources}) })
	}
}

// uncommented takes the comments of fields away, and adds them to those that are left.
func uncommented(fields []field, left []string) (bare []field, comments []string) {
	for _, f := range fields {
		left = append(left, f.head...)
		if f.tail != "" {
			left = append(left, f.tail)
		}
		f.head, f.tail = nil, ""
		bare = append(bare, f)
	}
	return bare, left
}

func names(fields []field) string {
	all := make([]string, len(fields))
	for i := range fields {
		all[i] = fields[i].key
	}
	return strings.Join(all, ",")
}

// planAnnotations adds annotations to the pod, and to those that it has.
func (p *pod) planAnnotations() {
	if kind := stringOf(p.owner, "kind"); kind != "" && kind != "Pod" && stringOf(p.owner, "apiVersion") != "" {
		p.note("the annotations are set on the %s itself; see that its controller gives them to the pods", kind)
	}
	d := p.document
	var fresh []field
	for _, a := range p.ask {
		value := pairsText(a.pairs)
		key, raw := find(p.annotations.value, a.key)
		if key == nil {
			fresh = append(fresh, field{key: a.key, kind: textField, value: value})
			continue
		}
		n := deref(raw)
		if before := strings.TrimSpace(n.Value); before != "" {
			value = before + "," + value
		}
		d.plan(p.annotations.at(n, "["+a.key+"]"), n, "set "+value, func() { d.setString(n, value, isFlow(p.annotations.value)) })
	}
	if len(fresh) > 0 {
		p.planFresh(fresh)
	}
}

// planFresh adds annotations that are not there yet, and makes what is missing down to them.
func (p *pod) planFresh(fresh []field) {
	d, what := p.document, "annotate"
	for _, f := range fresh {
		what += " " + f.key + ":" + f.value
	}
	all := field{key: "annotations", fields: fresh}
	switch {
	case p.annotations.value != nil:
		d.plan(p.annotations.place, p.annotations.value, what, func() { d.addFields(p.annotations.value, fresh) })
	case p.annotations.key != nil:
		d.plan(p.annotations.place, p.metadata.value, what, func() { d.fill(p.metadata.value, p.annotations.key, fresh) })
	case p.metadata.value != nil:
		d.plan(p.metadata.place, p.metadata.value, what, func() { d.addFields(p.metadata.value, []field{all}) })
	case p.metadata.key != nil:
		d.plan(p.metadata.place, p.owner, what, func() { d.fill(p.owner, p.metadata.key, []field{all}) })
	default:
		d.plan(p.place, p.owner, what, func() { d.insertField(p.owner, p.key, field{key: "metadata", fields: []field{all}}) })
	}
}
