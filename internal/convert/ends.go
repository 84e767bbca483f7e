// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// end is where a node ends; a comment behind it is not part of it. indent is the column of the block that the node is a
// part of, -1 for none; only block scalars need it.
func (s *source) end(n *yaml.Node, indent int) int {
	at := s.start(n)
	switch n.Kind {
	case yaml.AliasNode:
		return at + len("*") + len(n.Value)
	case yaml.ScalarNode:
		return s.scalarEnd(n, at, indent)
	}
	flow := n.Style&yaml.FlowStyle != 0
	switch {
	case len(n.Content) == 0:
		return s.closing(at + 1)
	case flow && (s.byteAt(at) == '{' || s.byteAt(at) == '['):
		return s.closing(s.end(n.Content[len(n.Content)-1], indent))
	}
	return s.end(n.Content[len(n.Content)-1], s.column(at))
}

// endOf is the end of a mapping's value, or of a list's element, below its key or dash at the column of that.
func (s *source) endOf(key, value *yaml.Node) int { return s.end(value, s.column(s.offset(key))) }

// closing is behind the bracket that ends a flow collection, after its last element.
func (s *source) closing(at int) int {
	at = s.skipSpace(at, ",")
	if b := s.byteAt(at); b == '}' || b == ']' {
		return at + 1
	}
	return at
}

func (s *source) scalarEnd(n *yaml.Node, at, indent int) int {
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return s.doubleQuotedEnd(at + 1)
	case n.Style&yaml.SingleQuotedStyle != 0:
		return s.singleQuotedEnd(at + 1)
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s.blockScalarEnd(at, indent)
	}
	return s.plainEnd(at, n.Value)
}

func (s *source) doubleQuotedEnd(at int) int {
	for ; at < len(s.text); at++ {
		switch s.text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(s.text)
}

func (s *source) singleQuotedEnd(at int) int {
	for ; at < len(s.text); at++ {
		if s.text[at] != '\'' {
			continue
		}
		if s.byteAt(at+1) != '\'' {
			return at + 1
		}
		at++
	}
	return len(s.text)
}

// plainEnd follows a plain scalar, which is its value but for blanks and line breaks: those are folded.
func (s *source) plainEnd(at int, value string) int {
	for i := range len(value) {
		b := value[i]
		if isSpace(b) {
			continue
		}
		for at < len(s.text) && isSpace(s.text[at]) {
			at++
		}
		if s.byteAt(at) != b {
			return at
		}
		at++
	}
	return at
}

// blockScalarEnd is the end of the last line of a scalar that begins with "|" or ">" at at.
func (s *source) blockScalarEnd(at, indent int) int {
	last := s.lineEnd(at)
	header, _, _ := bytes.Cut(s.text[at:last], []byte("#"))
	keep := bytes.ContainsRune(header, '+')
	content := -1 // its column, once it is known
	if i := bytes.IndexAny(header, "123456789"); i >= 0 {
		content = max(indent, 0) + int(header[i]-'0')
	}
	for line := s.nextLine(at); line < len(s.text); line = s.nextLine(line) {
		end := s.lineEnd(line)
		text := string(s.text[line:end])
		spaces := len(text) - len(strings.TrimLeft(text, " "))
		if spaces == len(text) {
			if keep || content >= 0 && spaces > content {
				last = end
			}
			continue
		}
		if content < 0 {
			content = max(spaces, indent+1)
		}
		if spaces < content || spaces == 0 && isMarker(text) {
			break
		}
		last = end
	}
	return last
}

// isMarker says whether a line begins or ends a document.
func isMarker(line string) bool {
	for _, marker := range []string{"---", "..."} {
		if rest, ok := strings.CutPrefix(line, marker); ok && (rest == "" || isSpace(rest[0])) {
			return true
		}
	}
	return false
}
