// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// How large a document may be with all its aliases written out: this many nodes, and some times as many as it has.
const (
	maxWays  = 1 << 16
	maxTimes = 4
)

const mergeKey = "<<"

// deref follows an alias.
func deref(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

func isMapping(n *yaml.Node) bool { return n != nil && n.Kind == yaml.MappingNode }

// find has the key and value of a field that is in the mapping itself; the value may be an alias.
func find(m *yaml.Node, name string) (key, value *yaml.Node) {
	if !isMapping(m) {
		return nil, nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Kind == yaml.ScalarNode && m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// valueOf a field; nil when it is not there, or null.
func valueOf(m *yaml.Node, name string) *yaml.Node {
	_, value := find(m, name)
	if value = deref(value); value == nil || isNull(value) {
		return nil
	}
	return value
}

// stringOf a field; empty when there is none.
func stringOf(m *yaml.Node, name string) string {
	if value := valueOf(m, name); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}
	return ""
}

// entry is what must be known of a field to change it.
type entry struct {
	place
	// key is nil when there is no such field; value is behind aliases, and nil when null.
	key, value *yaml.Node
	// raw is the value as it is written: it may be an alias, or null.
	raw *yaml.Node
}

// entry finds a field to be read and changed. What is not clear is noted: one that is there twice, or comes by a merge key.
func (d *document) entry(m *yaml.Node, name string, at place) entry {
	at = at.at(m, "."+name)
	e := entry{place: at}
	for i := 0; i+1 < len(m.Content); i += 2 {
		switch key := m.Content[i]; {
		case key.Value == mergeKey && key.ShortTag() == "!!merge" && merges(m.Content[i+1], name):
			d.fault(at.at(key, ""), "comes from the merge key <<; write it out here")
		case key.Kind != yaml.ScalarNode || key.Value != name:
		case e.key != nil:
			d.fault(at.at(key, ""), "is here twice; remove one of them")
		default:
			e.key, e.raw = key, m.Content[i+1]
			e.line = key.Line
		}
	}
	if e.key == nil {
		return e
	}
	d.checkKey(e.key, e.place)
	if value := deref(e.raw); !isNull(value) {
		e.value = value
	}
	return e
}

// mapping is a field that is a mapping, or null, or not there. One that is empty and can as well be written as a block is taken for null.
func (d *document) mapping(m *yaml.Node, name string, at place) entry {
	e := d.entry(m, name, at)
	if e.value != nil && e.value.Kind != yaml.MappingNode {
		d.fault(e.place, "must be a mapping, not %s", describe(e.value))
		e.value = nil
	}
	if e.raw != nil && e.raw.Kind == yaml.MappingNode && len(e.raw.Content) == 0 && e.raw.Anchor == "" && !isFlow(m) &&
		strings.Trim(string(d.text[d.colon(e.key):d.start(e.raw)]), " \t\r\n") == "" {
		e.value = nil
	}
	return e
}

// checkKey refuses keys that are not written in a way that can be changed.
func (d *document) checkKey(key *yaml.Node, at place) {
	from := d.offset(key)
	written := string(d.text[from:max(from, min(d.end(key, -1), len(d.text)))])
	plain := written == key.Value || written == `"`+key.Value+`"` || written == "'"+key.Value+"'"
	if !plain || strings.HasSuffix(strings.TrimRight(d.before(from), " \t"), "?") {
		d.fault(at, "is written in a way that cannot be changed; write it as a plain key, %s: and its value", key.Value)
	}
}

// merges says whether what is merged has a field.
func merges(merged *yaml.Node, name string) bool {
	merged = deref(merged)
	if merged.Kind == yaml.SequenceNode {
		return slices.ContainsFunc(merged.Content, func(n *yaml.Node) bool { return merges(n, name) })
	}
	if key, _ := find(merged, name); key != nil {
		return true
	}
	_, more := find(merged, mergeKey)
	return more != nil && merges(more, name)
}

// countPaths counts the ways from the root to each node. It is false, and noted, when there are too many.
func (d *document) countPaths() bool {
	ways := 0
	above := map[*yaml.Node]bool{}
	var count func(n *yaml.Node) bool
	count = func(n *yaml.Node) bool {
		n = deref(n)
		ways++
		if ways > maxWays+maxTimes*len(d.paths) || above[n] {
			d.fault(place{line: n.Line}, "aliases make the document endless, or too large; write it without them")
			return false
		}
		d.paths[n]++
		above[n] = true
		defer delete(above, n)
		return !slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return !count(child) })
	}
	return count(d.root)
}

// mentions says whether a field of this name is anywhere in a node, behind aliases too.
func mentions(n *yaml.Node, name string) bool {
	n = deref(n)
	if key, _ := find(n, name); key != nil {
		return true
	}
	return slices.ContainsFunc(n.Content, func(child *yaml.Node) bool { return mentions(child, name) })
}

// stepOf is the indentation of the first block mapping in another one; 2 without one.
func stepOf(n *yaml.Node) int {
	if step := findStep(n); step > 0 {
		return step
	}
	return 2
}

func findStep(n *yaml.Node) int {
	if isMapping(n) && !isFlow(n) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if isMapping(value) && !isFlow(value) && len(value.Content) > 0 {
				return value.Content[0].Column - key.Column
			}
		}
	}
	for _, child := range n.Content {
		if step := findStep(child); step > 0 {
			return step
		}
	}
	return 0
}

// equal says whether two nodes are read alike; the order of fields counts, style and comments do not.
func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || a.Anchor != b.Anchor {
		return false
	}
	if a.Kind == yaml.AliasNode {
		return true
	}
	return a.ShortTag() == b.ShortTag() && slices.EqualFunc(a.Content, b.Content, equal)
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
	return quote(n.Value)
}

// maxEcho bounds what errors repeat of a text, in bytes.
const maxEcho = 64

func quote(text string) string {
	if len(text) > maxEcho {
		text = text[:maxEcho] + "..."
	}
	return `"` + strings.Map(printable, text) + `"`
}

func printable(r rune) rune {
	if r < ' ' || r == '\u007f' || r == '\ufffd' {
		return '?'
	}
	return r
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
