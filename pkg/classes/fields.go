// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// entry is a value in a class file, with the line of its key.
type entry struct {
	node *yaml.Node
	line int
	at   *path
}

// mapping returns the fields of an entry by name, and notes those that are not known. It is nil for no mapping.
func (d *document) mapping(e entry, known []string) map[string]entry {
	fields := e.fields()
	if fields == nil {
		d.fault(e.line, e.at, "must be a mapping with fields out of %s, not %s", strings.Join(known, ", "), describe(e.node))
		return nil
	}
	for name, field := range fields {
		if !slices.Contains(known, name) {
			d.fault(field.line, field.at, "unknown field; known are %s", strings.Join(known, ", "))
		}
	}
	return fields
}

// fields of a mapping by name; nil for anything else.
func (e entry) fields() map[string]entry {
	if e.node.Kind != yaml.MappingNode {
		return nil
	}
	fields := make(map[string]entry, len(e.node.Content)/2)
	for i := 0; i+1 < len(e.node.Content); i += 2 {
		key := e.node.Content[i]
		fields[key.Value] = entry{e.node.Content[i+1], key.Line, e.at.field(key.Value)}
	}
	return fields
}

// elements of a list.
func (d *document) elements(e entry) []entry {
	if e.node.Kind != yaml.SequenceNode {
		d.fault(e.line, e.at, "must be a list, not %s", describe(e.node))
		return nil
	}
	all := make([]entry, len(e.node.Content))
	for i, n := range e.node.Content {
		all[i] = entry{n, n.Line, e.at.element(i)}
	}
	return all
}

// text is the value of a string; ok is false for anything else, which is noted.
func (d *document) text(e entry) (value string, ok bool) {
	if e.node.Kind == yaml.ScalarNode && e.node.ShortTag() == "!!str" {
		return e.node.Value, true
	}
	if e.node.Kind == yaml.ScalarNode && !isNull(e.node) {
		d.fault(e.line, e.at, "must be a string, not %s; put it in quotes", describe(e.node))
	} else {
		d.fault(e.line, e.at, "must be a string, not %s", describe(e.node))
	}
	return "", false
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + quote(n.Value)
	case "!!bool":
		return "the truth value " + quote(n.Value)
	case "!!timestamp":
		return "the date " + quote(n.Value)
	}
	return quote(n.Value)
}
