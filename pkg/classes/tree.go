// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "go.yaml.in/yaml/v3"

const (
	// maxDepth is far more than any configuration has; it ends aliases to themselves, too.
	maxDepth = 50
	// maxValues bounds the nodes of a file, those that aliases stand for included: some thousand classes.
	maxValues = 20_000
)

// expand copies a tree without aliases, merge keys, comments and block texts, so that others can walk it without
// care and print it with each value on a line of its own. It notes keys that are there twice, and keeps the first.
// It is nil for a tree that is too large.
func (d *document) expand(n *yaml.Node) *yaml.Node {
	e := expander{document: d}
	expanded := e.node(n, nil, 0)
	if e.stopped {
		return nil
	}
	return expanded
}

type expander struct {
	*document
	// values counts the nodes so far.
	values  int
	stopped bool
}

func (e *expander) node(n *yaml.Node, at *path, depth int) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return e.node(n.Alias, at, depth+1)
	}
	expanded := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column}
	if !e.affordable(n, at, depth) {
		return null(n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		expanded.Content = e.mapping(n, at, depth)
	case yaml.SequenceNode:
		for i, child := range n.Content {
			expanded.Content = append(expanded.Content, e.node(child, at.element(i), depth+1))
		}
	default:
		expanded.Style = scalarStyle(n.Style)
	}
	return expanded
}

// scalarStyle writes texts of several lines on one: not all that can be read in block style survive being written in it.
func scalarStyle(style yaml.Style) yaml.Style {
	if style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.SingleQuotedStyle) != 0 {
		return style&yaml.TaggedStyle | yaml.DoubleQuotedStyle
	}
	return style
}

func (e *expander) affordable(n *yaml.Node, at *path, depth int) bool {
	e.values++
	switch {
	case e.stopped:
		return false
	case depth > maxDepth:
		e.fault(n.Line, at, "is nested deeper than %d levels", maxDepth)
	case e.values > maxValues:
		e.fault(n.Line, at, "is beyond the %d values that a file may have, those that aliases stand for included; split it", maxValues)
	default:
		return true
	}
	e.stopped = true
	return false
}

func null(n *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: n.Line, Column: n.Column}
}

// mapping returns keys and values. Fields of the mapping itself come before those that are merged into it.
func (e *expander) mapping(n *yaml.Node, at *path, depth int) []*yaml.Node {
	var content []*yaml.Node
	lines := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := dealias(n.Content[i]), n.Content[i+1]
		switch first, seen := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			e.fault(n.Content[i].Line, at, "has a key that is not a plain word")
		case key.ShortTag() == "!!merge":
			merged = append(merged, value)
		case seen:
			e.fault(key.Line, at.field(key.Value), "is there twice; the first is in line %d", first)
		default:
			lines[key.Value] = key.Line
			content = append(content, e.node(key, at, depth+1), e.node(value, at.field(key.Value), depth+1))
		}
	}
	for _, value := range merged {
		content = e.merge(content, lines, value, at, depth+1)
	}
	return content
}

// merge adds what "<<" refers to: a mapping, or a list of mappings of which earlier ones win.
func (e *expander) merge(content []*yaml.Node, lines map[string]int, from *yaml.Node, at *path, depth int) []*yaml.Node {
	tree := e.node(from, at.field("<<"), depth)
	sources := []*yaml.Node{tree}
	if tree.Kind == yaml.SequenceNode {
		sources = tree.Content
	}
	for _, source := range sources {
		if source.Kind != yaml.MappingNode {
			e.fault(source.Line, at.field("<<"), "must be a mapping, or a list of mappings")
			continue
		}
		for i := 0; i+1 < len(source.Content); i += 2 {
			key := source.Content[i]
			if _, seen := lines[key.Value]; !seen {
				lines[key.Value] = key.Line
				content = append(content, key, source.Content[i+1])
			}
		}
	}
	return content
}

func dealias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
