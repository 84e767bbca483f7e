// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The changes of this file are made twice: in the text, and in the nodes that were read from it, which is what the new text must
// be read as. Positions are those of the old text, so the nodes are changed when all places are known.

func (d *document) replaceText(from, to int, text string) {
	d.edits = append(d.edits, edit{from, to, text})
}

func (d *document) later(change func()) { d.models = append(d.models, change) }

func isFlow(m *yaml.Node) bool { return m.Style&yaml.FlowStyle != 0 }

// addFields appends fields to a mapping.
func (d *document) addFields(m *yaml.Node, fields []field) {
	if isFlow(m) {
		d.addFlow(m, fields)
	} else {
		indent := d.newline + strings.Repeat(" ", d.column(d.offset(m.Content[0])))
		at := d.lineEnd(d.end(m, -1))
		d.replaceText(at, at, indent+strings.Join(linesOf(fields, d.step), indent))
	}
	d.later(func() { m.Content = append(m.Content, nodes(fields)...) })
}

func (d *document) addFlow(m *yaml.Node, fields []field) {
	style := d.flowStyle(m)
	if n := len(m.Content); n > 0 {
		at := d.end(m.Content[n-1], -1)
		d.replaceText(at, at, style.between()+flowFields(fields, style))
		return
	}
	from := d.start(m) + 1
	to := d.skip(from, " \t")
	if d.byteAt(to) != '}' {
		to = from
	}
	d.replaceText(from, to, flowFields(fields, style))
}

// flowStyle is that of a mapping's entries, or for an empty one that of its document.
func (d *document) flowStyle(m *yaml.Node) flowStyle {
	style := flowStyle{quote: d.json, colon: ": ", comma: ", "}
	if len(m.Content) == 0 {
		if d.json && len(d.root.Content) > 0 {
			style = d.flowStyle(d.root)
			style.newline = ""
		}
		return style
	}
	first := d.offset(m.Content[0])
	style.quote = d.byteAt(first) == '"'
	colon := d.colon(m.Content[0])
	if next := d.byteAt(colon); style.quote && !isSpace(next) {
		style.colon, style.comma = ":", ","
	}
	if d.beginsLine(first) {
		style.newline, style.indent = d.newline, d.before(first)
		style.unit = strings.Repeat(" ", d.step)
		if outer := d.indentation(d.start(m)); strings.HasPrefix(style.indent, outer) && style.indent != outer {
			style.unit = style.indent[len(outer):]
		}
	}
	return style
}

// colon is behind the one of a key.
func (d *document) colon(key *yaml.Node) int {
	at := d.skipSpace(d.end(key, -1), "")
	if d.byteAt(at) == ':' {
		at++
	}
	return at
}

// replaceField puts another field in the place of one.
func (d *document) replaceField(m, key *yaml.Node, f field) {
	_, value := entryOf(m, key)
	from, to := d.offset(key), d.endOf(key, value)
	if isFlow(m) {
		style := d.flowStyle(m)
		if d.lineStart(d.start(value)) == d.lineStart(to) {
			style.newline = "" // it was in one line, and stays so
		}
		d.replaceText(from, to, f.flow(style))
	} else {
		indent := d.newline + strings.Repeat(" ", d.column(from))
		d.replaceText(from, d.lineEnd(to), strings.Join(f.lines(d.step), indent))
	}
	d.later(func() {
		i, _ := entryOf(m, key)
		m.Content = slices.Replace(m.Content, i, i+2, nodes([]field{f})...)
	})
}

// insertField puts a field before another one.
func (d *document) insertField(m, before *yaml.Node, f field) {
	at := d.offset(before)
	if isFlow(m) {
		style := d.flowStyle(m)
		d.replaceText(at, at, f.flow(style)+style.between())
	} else {
		indent := d.newline + strings.Repeat(" ", d.column(at))
		d.replaceText(at, at, strings.Join(f.lines(d.step), indent)+indent)
	}
	d.later(func() {
		i, _ := entryOf(m, before)
		m.Content = slices.Insert(m.Content, i, nodes([]field{f})...)
	})
}

// fill makes a mapping of a field that is null, or empty.
func (d *document) fill(m, key *yaml.Node, fields []field) {
	_, value := entryOf(m, key)
	colon, end := d.colon(key), d.endOf(key, value)
	if isFlow(m) {
		style := d.flowStyle(m)
		style.newline = ""
		d.replaceText(colon, end, strings.TrimPrefix(style.colon, ":")+flowMapping(fields, style))
	} else {
		indent := d.newline + strings.Repeat(" ", d.column(d.offset(key))+d.step)
		d.replaceText(colon, end, "")
		at := d.lineEnd(end)
		d.replaceText(at, at, indent+strings.Join(linesOf(fields, d.step), indent))
	}
	d.later(func() {
		i, _ := entryOf(m, key)
		m.Content[i+1] = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: nodes(fields)}
	})
}

// setString gives a scalar another value, in quotes if it had some.
func (d *document) setString(n *yaml.Node, value string, quote bool) {
	text := value
	switch {
	case n.Style&yaml.SingleQuotedStyle != 0:
		text = "'" + value + "'"
	case quote || n.Style&yaml.DoubleQuotedStyle != 0:
		text = strconv.Quote(value)
	}
	at := d.start(n)
	if d.byteAt(at-1) == ':' {
		text = " " + text // there was nothing
	}
	d.replaceText(at, d.end(n, -1), text)
	d.later(func() { n.Value, n.Tag = value, "!!str" })
}

// removeField takes a field away and leaves its comments, with the mapping, empty if it must be.
func (d *document) removeField(m, key *yaml.Node, comments []string) {
	i, value := entryOf(m, key)
	switch {
	case isFlow(m):
		d.removeFlow(m, i)
	case len(m.Content) == 2:
		d.removeOnly(d.offset(key), d.lineEnd(d.endOf(key, value)), comments)
	default:
		d.removeBlock(m, i, comments)
	}
	d.later(func() {
		i, _ := entryOf(m, key)
		m.Content = slices.Delete(m.Content, i, i+2)
	})
}

// removeOnly leaves "{}" where the only entry of a block mapping was, if it can behind the mapping's key.
func (d *document) removeOnly(from, to int, comments []string) {
	indent := d.newline + strings.Repeat(" ", d.column(from))
	key := d.skipBack(from)
	line := d.before(key)
	if len(comments) == 0 && strings.HasSuffix(line, ":") && !strings.Contains(line, "#") {
		d.replaceText(key, to, " {}")
		return
	}
	d.replaceText(from, to, strings.Join(append(slices.Clone(comments), "{}"), indent))
}

func (d *document) removeFlow(m *yaml.Node, i int) {
	switch {
	case len(m.Content) == 2:
		d.replaceText(d.start(m)+1, d.end(m, -1)-1, "")
	case i+2 < len(m.Content):
		d.replaceText(d.offset(m.Content[i]), d.offset(m.Content[i+2]), "")
	default:
		d.replaceText(d.end(m.Content[i-1], -1), d.end(m.Content[i+1], -1), "")
	}
}

func (d *document) removeBlock(m *yaml.Node, i int, comments []string) {
	key := m.Content[i]
	from, to := d.offset(key), d.lineEnd(d.endOf(key, m.Content[i+1]))
	indent := strings.Repeat(" ", d.column(from))
	if !d.beginsLine(from) {
		// Something must stay behind the dash: the comments, or the next field.
		next := d.skip(to, " \t\r\n")
		text := ""
		for _, comment := range comments {
			text += comment + d.newline + indent
		}
		d.replaceText(from, next, text)
		return
	}
	d.removeLines(from, to, comments)
}

// removeLines takes away the lines from that of from to that of to, and leaves comments at the column of from.
func (d *document) removeLines(from, to int, comments []string) {
	indent := d.before(from)
	text := ""
	for _, comment := range comments {
		text += indent + comment + d.newline
	}
	d.replaceText(d.lineStart(from), d.nextLine(to), text)
}

// entryOf finds the entry with this very key in a mapping.
func entryOf(m, key *yaml.Node) (i int, value *yaml.Node) {
	i = slices.Index(m.Content, key)
	return i, m.Content[i+1]
}
