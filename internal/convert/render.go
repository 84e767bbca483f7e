// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is an entry of a mapping to be written: a number, a string, or a mapping, which may be empty.
type field struct {
	key    string
	kind   fieldKind
	value  string
	fields []field
	// head are comments on lines of their own before the entry, tail is one behind it; both with "#", for block style.
	head []string
	tail string
}

type fieldKind int

const (
	mappingField fieldKind = iota
	numberField
	textField
	// quotedField is a string that would be read as something else without quotes.
	quotedField
)

// lines are the field in block style, each with its indentation below that of the key.
func (f *field) lines(step int) []string {
	var lines []string
	lines = append(lines, f.head...)
	first := f.key + ":"
	switch f.kind {
	case numberField, textField:
		first += " " + f.value
	case quotedField:
		first += " " + strconv.Quote(f.value)
	case mappingField:
		if len(f.fields) == 0 {
			first += " {}"
		}
	}
	if f.tail != "" {
		first += " " + f.tail
	}
	lines = append(lines, first)
	for _, line := range linesOf(f.fields, step) {
		lines = append(lines, strings.Repeat(" ", step)+line)
	}
	return lines
}

func linesOf(fields []field, step int) []string {
	var lines []string
	for i := range fields {
		lines = append(lines, fields[i].lines(step)...)
	}
	return lines
}

// flowStyle is how a mapping in flow style is written.
type flowStyle struct {
	// quote keys, as JSON does.
	quote bool
	// colon and comma, with the blank behind them if there is one.
	colon, comma string
	// newline begins a line for each entry; empty when all are in one line.
	newline string
	// indent is that of the entries' lines, unit what is more in each level.
	indent, unit string
}

// between is what separates two entries.
func (s flowStyle) between() string {
	if s.newline == "" {
		return s.comma
	}
	return "," + s.newline + s.indent
}

// flow is the field in flow style.
func (f *field) flow(s flowStyle) string {
	key := f.key
	if s.quote {
		key = strconv.Quote(key)
	}
	switch f.kind {
	case numberField:
		return key + s.colon + f.value
	case mappingField:
		return key + s.colon + flowMapping(f.fields, s)
	}
	return key + s.colon + strconv.Quote(f.value)
}

// flowMapping is a mapping in flow style, in a mapping of style s.
func flowMapping(fields []field, s flowStyle) string {
	if len(fields) == 0 {
		return "{}"
	}
	inner := s
	inner.indent += s.unit
	text := flowFields(fields, inner)
	if s.newline == "" {
		return "{" + text + "}"
	}
	return "{" + s.newline + inner.indent + text + s.newline + s.indent + "}"
}

func flowFields(fields []field, s flowStyle) string {
	texts := make([]string, len(fields))
	for i := range fields {
		texts[i] = fields[i].flow(s)
	}
	return strings.Join(texts, s.between())
}

// nodes are what the field is when it is read.
func nodes(fields []field) []*yaml.Node {
	var all []*yaml.Node
	for i := range fields {
		f := &fields[i]
		value := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.value}
		switch f.kind {
		case numberField:
			value.Tag = "!!int"
		case mappingField:
			value = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: nodes(f.fields)}
		}
		all = append(all, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.key}, value)
	}
	return all
}
