// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

func index(i int) string { return "[" + strconv.Itoa(i) + "]" }

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == yaml.NodeTagNull }

func isMapping(n *yaml.Node) bool { return n != nil && n.Kind == yaml.MappingNode }

func isList(n *yaml.Node) bool { return n != nil && n.Kind == yaml.SequenceNode }

func fields(m *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; isMapping(m) && i+1 < len(m.Content); i += 2 {
			if !yield(m.Content[i], m.Content[i+1]) {
				return
			}
		}
	}
}

func elements(n *yaml.Node) []*yaml.Node {
	if isList(n) {
		return n.Content
	}
	return nil
}

func find(m *yaml.Node, name string) (key, value *yaml.Node) {
	for key, value := range fields(m) {
		if key.Kind == yaml.ScalarNode && key.Value == name {
			return key, value
		}
	}
	return nil, nil
}

func valueOf(m *yaml.Node, name string) *yaml.Node {
	if _, value := find(m, name); value != nil && !isNull(value) {
		return value
	}
	return nil
}

func stringOf(m *yaml.Node, name string) string {
	if value := valueOf(m, name); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}
	return ""
}

func contains(n *yaml.Node, name string) bool {
	key, _ := find(n, name)
	return key != nil || slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return contains(child, name) })
}

type entry struct {
	place
	// `key` and `node` are nil if the YAML field does not exist. `value` is nil if the YAML field does not exist or is
	// null, and otherwise equal to `node`.
	key, node, value *yaml.Node
}

// entry finds a field. It reports a problem if the field occurs twice or comes from a merge key.
func (d *document) entry(m *yaml.Node, name string, at place) entry {
	e := entry{place: at.at(m, "."+name)}
	for key, value := range fields(m) {
		switch {
		case isMerge(key) && slices.Contains(mergedNames(value), name):
			d.fault(e.at(key, ""), "is set by the merge key <<; write the field here instead")
		case key.Kind != yaml.ScalarNode || key.Value != name:
		case e.key != nil:
			d.fault(e.at(key, ""), "is defined twice; remove one of them")
		default:
			e.key, e.node, e.line = key, value, key.Line
			d.handled[key] = name == fieldName
		}
	}

	if e.node != nil && !isNull(e.node) {
		e.value = e.node
	}
	return e
}

// mapping returns a field of `m`. It reports a problem if the field is neither null nor a mapping.
func (d *document) mapping(m *yaml.Node, name string, at place) entry {
	return d.entryOf(yaml.MappingNode, "a mapping", m, name, at)
}

// list finds a field. If the field is neither null nor a list, list reports the problem "must be a list of WHAT".
func (d *document) list(m *yaml.Node, name string, at place, what string) entry {
	return d.entryOf(yaml.SequenceNode, "a list of "+what, m, name, at)
}

func (d *document) entryOf(kind yaml.Kind, what string, m *yaml.Node, name string, at place) entry {
	e := d.entry(m, name, at)
	if e.value != nil && e.value.Kind != kind {
		d.fault(e.place, "must be %s, not %s", what, describe(e.value))
		e.value = nil
	}
	return e
}

// refuseField reports the KEP's field in a mapping in which the field is not allowed.
func (d *document) refuseField(m *yaml.Node, at place, remedy string) {
	if key, _ := find(m, fieldName); key != nil && !d.handled[key] {
		d.handled[key] = true
		d.fault(at.at(key, "."+fieldName), "is not supported here; move it to %s", remedy)
	}
}

func isMerge(key *yaml.Node) bool { return key.ShortTag() == yaml.MergeTag }

// mergedNames returns the names of the fields that the value of a merge key adds to a mapping, or to a field below the
// mapping. `path` leads from the mapping to that field.
func mergedNames(value *yaml.Node, path ...string) (names []string) {
	for _, element := range elements(value) {
		names = append(names, mergedNames(element, path...)...)
	}
	for key, field := range fields(value) {
		switch {
		case isMerge(key):
			names = append(names, mergedNames(field, path...)...)
		case len(path) == 0:
			names = append(names, key.Value)
		case key.Value == path[0]:
			names = append(names, mergedNames(field, path[1:]...)...)
		}
	}
	return names
}

func describe(n *yaml.Node) string {
	switch {
	case isMapping(n):
		return "a mapping"
	case isList(n):
		return "a list"
	case isNull(n):
		return "empty"
	}
	return quote(n.Value)
}

func quote(text string) string { return fmt.Sprintf("%.64q", text) }

func listed(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }
