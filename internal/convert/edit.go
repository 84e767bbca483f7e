// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// field is an entry to add to a mapping, with its comments.
type field struct {
	key      string
	value    *yaml.Node
	comments comments
}

// comments has the comments of removed nodes: `head` those before the nodes, `line` those at line ends, and `foot`
// those after the nodes.
type comments struct{ head, line, foot string }

func (c comments) all() string { return join(c.head, c.line, c.foot) }

func commentsOf(nodes ...*yaml.Node) comments {
	var c comments
	for _, n := range nodes {
		below := commentsOf(n.Content...)
		c.head = join(c.head, n.HeadComment, below.head)
		c.line = join(c.line, n.LineComment, below.line)
		c.foot = join(c.foot, below.foot, n.FootComment)
	}
	return c
}

// ownComments returns the comments of nodes, without the comments of the nodes below them.
func ownComments(nodes ...*yaml.Node) string {
	var all string
	for _, n := range nodes {
		all = join(all, n.HeadComment, n.LineComment, n.FootComment)
	}
	return all
}

// join joins comments to one comment with several lines.
func join(comments ...string) string {
	return strings.Join(slices.DeleteFunc(comments, func(comment string) bool { return comment == "" }), "\n")
}

func newMapping(added ...field) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: yaml.NodeTagMap}
	addFields(n, added...)
	return n
}

func newList() *yaml.Node { return &yaml.Node{Kind: yaml.SequenceNode, Tag: yaml.NodeTagSeq} }

// newText returns a string node. The string is quoted if a YAML parser would otherwise read it as another type.
func newText(value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagString, Value: value}
	if yaml.IsYaml1_1NonString(n) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func setText(n *yaml.Node, value string) {
	n.Style &= yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle
	n.Tag, n.Value = yaml.NodeTagString, value
}

// childMapping returns the mapping in the field of `m` that the argument `name` names. It creates the mapping if the field is
// missing or null.
func childMapping(m *yaml.Node, name string) *yaml.Node {
	key, value := find(m, name)
	if key == nil {
		key, value = newText(name), newMapping()
		m.Content = append(m.Content, key, value)
	}

	if len(value.Content) == 0 {
		// A comment after {} moves to the key, because the empty mapping becomes a block when fields are added.
		key.LineComment = strings.TrimSpace(key.LineComment + " " + value.LineComment)
		*value = *newMapping()
	}
	return value
}

// addFields appends fields to a mapping. If the mapping is written as {...} and a field has comments, addFields
// writes the mapping as a block, because the encoder drops comments between "{" and "}".
func addFields(m *yaml.Node, added ...field) {
	for _, f := range added {
		key, value := newText(f.key), f.value
		if m.Style&yaml.FlowStyle != 0 && f.comments.all() != "" {
			f.comments.head = join(m.LineComment, f.comments.head)
			m.Style, m.LineComment = 0, ""
		}
		key.HeadComment, key.FootComment = f.comments.head, f.comments.foot
		value.LineComment = strings.ReplaceAll(f.comments.line, "\n", " ")
		m.Content = append(m.Content, key, value)
	}
}

// replaceField renames the field `e` of the mapping `m` to `name`. The value of the field is then a mapping with the fields in
// `added`. If `m` already has a field `name`, replaceField adds the fields there, and removes `e`. If `e` does not exist,
// replaceField makes the field `name`. `lost` has comments of removed nodes, which replaceField writes into `m`.
func replaceField(m *yaml.Node, e entry, name string, added []field, lost string) {
	if key, _ := find(m, name); key != nil || e.key == nil {
		addFields(childMapping(m, name), added...)
		if e.key != nil {
			removeField(m, e, nil, join(ownComments(e.key, e.node), lost))
		}
		return
	}

	setText(e.key, name)
	e.key.HeadComment = join(e.key.HeadComment, ownComments(e.node), lost)
	*e.node = *newMapping(added...)
}

// removeField removes the field `e` from the mapping `m`. It moves the comments in `lost` to a neighbouring field. If `m` becomes
// empty, removeField moves these comments to the key of `m`, which is the parameter `above`.
func removeField(m *yaml.Node, e entry, above *yaml.Node, lost string) {
	remove(m, slices.Index(m.Content, e.key), 2, lost)
	if len(m.Content) == 0 && above != nil {
		m.Style, m.LineComment = yaml.FlowStyle, strings.TrimSpace(above.LineComment+" "+m.LineComment)
		above.LineComment = ""
		above.HeadComment = join(lost, above.HeadComment)
	}
}

// remove removes an element of a list, or the key and the value of a field. `lost` has the comments of the removed nodes.
// remove adds these comments to the next node or, if there is no next node, to the previous node.
func remove(n *yaml.Node, i, count int, lost string) {
	n.Content = slices.Delete(n.Content, i, i+count)
	if i < len(n.Content) {
		n.Content[i].HeadComment = join(lost, n.Content[i].HeadComment)
	} else if i > 0 {
		n.Content[i-count].FootComment = join(n.Content[i-count].FootComment, lost)
	}
}
