// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// remarks are the comments in a field that goes away.
type remarks struct {
	// key are those of the field itself.
	key remark
	// elements of its list, in their order.
	elements []remark
}

// all comments, those of the elements included.
func (r remarks) all() []string {
	all := r.key.all()
	for _, element := range r.elements {
		all = append(all, element.all()...)
	}
	return all
}

// remarks of a field of m with a list, from its key to the end of its last line. In flow style, where there is nowhere to put them,
// comments are refused.
func (d *document) remarks(m *yaml.Node, e entry) remarks {
	if e.raw.Kind == yaml.AliasNode {
		return d.remarksIn(m, e, nil)
	}
	return d.remarksIn(m, e, e.raw.Content)
}

// remarksIn has the comments of the parts of a field's value, which are given in their order.
func (d *document) remarksIn(m *yaml.Node, e entry, parts []*yaml.Node) remarks {
	r := remarks{elements: make([]remark, len(parts))}
	at, behind := d.end(e.key, -1), &r.key
	indent := d.column(d.offset(e.key))
	for i, part := range parts {
		for _, leaf := range leaves(part) {
			d.gap(at, d.offset(leaf), &r.elements[i], behind)
			at, behind = d.end(leaf, indent), &r.elements[i]
		}
	}
	stop := d.endOf(e.key, e.raw)
	if !isFlow(m) {
		stop = d.lineEnd(stop)
	}
	d.gap(at, stop, behind, behind)
	if comments := r.all(); isFlow(m) && len(comments) > 0 {
		d.fault(e.place, "has a comment inside (%s); move it out of the brackets", quote(comments[0]))
	}
	return r
}

// gap finds the comments between two scalars, where nothing else has a "#": those on lines of their own, and those behind what is
// before them.
func (d *document) gap(from, to int, own, behind *remark) {
	for at := from; at < to; at++ {
		if d.text[at] != '#' || !isSpace(d.byteAt(at-1)) {
			continue
		}
		end := d.lineEnd(at)
		comment := strings.TrimRight(string(d.text[at:end]), " \t")
		if strings.Trim(d.before(at), " \t-") == "" {
			own.head = append(own.head, comment)
		} else {
			behind.tail = append(behind.tail, comment)
		}
		at = end
	}
}

// leaves are the scalars and aliases in a node, keys included, in their order.
func leaves(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode {
		return []*yaml.Node{n}
	}
	var all []*yaml.Node
	for _, child := range n.Content {
		all = append(all, leaves(child)...)
	}
	return all
}
