// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "go.yaml.in/yaml/v3"

const (
	// maxDepth is far more than any configuration has. It also stops aliases that contain themselves.
	maxDepth = 50
	// maxValues bounds the keys and values of a file, those behind aliases included: enough for some thousand classes.
	maxValues = 20_000
)

// builder makes Fields of YAML nodes: it follows aliases, adds what merge keys refer to, and reports duplicate keys, of
// which the first counts.
type builder struct {
	values int
	// stopped is true when the file is too large to continue.
	stopped bool
}

// fill sets the value of a field.
func (b *builder) fill(f *Field, n *yaml.Node, depth int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	f.node = n

	b.values++
	switch {
	case b.stopped:
		return
	case depth > maxDepth:
		b.stopped = true
		f.Report("is nested deeper than %d levels", maxDepth)
	case b.values > maxValues:
		b.stopped = true
		f.Report("is beyond the %d values that a file may have, those behind aliases included; split it", maxValues)
	case n.Kind == yaml.MappingNode:
		b.fillMapping(f, depth+1)
	case n.Kind == yaml.SequenceNode:
		for i, element := range n.Content {
			child := &Field{document: f.document, parent: f, index: i, line: element.Line}
			f.children = append(f.children, child)
			b.fill(child, element, depth+1)
		}
	}
}

func (b *builder) fillMapping(f *Field, depth int) {
	seen := map[string]*Field{}
	var merged []*Field
	for i := 0; i+1 < len(f.node.Content); i += 2 {
		key, value := f.node.Content[i], f.node.Content[i+1]
		child := &Field{document: f.document, parent: f, line: key.Line}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		b.values++
		child.Name = key.Value

		switch {
		case key.Kind != yaml.ScalarNode:
			f.document.report(child.line, f.Path(), "has a key that is not a plain word")
		case key.ShortTag() == "!!merge":
			b.fill(child, value, depth)
			merged = append(merged, child)
		case seen[key.Value] != nil:
			child.reportDuplicate(seen[key.Value])
		default:
			seen[key.Value] = child
			f.children = append(f.children, child)
			b.fill(child, value, depth)
		}
	}

	for _, source := range merged {
		b.merge(f, source, seen)
	}
}

// merge adds the fields of a merge key's value, which is a mapping, or a list of mappings of which earlier ones win.
// Fields that the mapping has already stay.
func (b *builder) merge(f, from *Field, seen map[string]*Field) {
	sources := []*Field{from}
	if from.IsList() {
		sources = from.children
	}

	for _, source := range sources {
		if !source.isMapping() {
			source.Report("must be a mapping, or a list of mappings")
			continue
		}
		for _, child := range source.children {
			if seen[child.Name] == nil {
				seen[child.Name] = child
				child.parent = f
				f.children = append(f.children, child)
			}
		}
	}
}
