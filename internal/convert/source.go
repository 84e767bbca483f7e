// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const byteOrderMark = "\ufeff"

// source is a text, and where in it the nodes are that were read from it. The parser tells where a node begins, by line and
// column; where it ends is found here.
type source struct {
	text []byte
	// lines are the offsets at which lines begin.
	lines []int
	// newline is how lines end: as the first one does.
	newline string
}

func newSource(text []byte) *source {
	s := &source{text: text, newline: "\n"}
	at := 0
	if bytes.HasPrefix(text, []byte(byteOrderMark)) {
		at = len(byteOrderMark) // in no column
	}
	s.lines = append(s.lines, at)
	for at < len(text) {
		n := breakLength(text[at:])
		if n == 0 {
			at++
			continue
		}
		if len(s.lines) == 1 && n == 2 && text[at] == '\r' {
			s.newline = "\r\n"
		}
		at += n
		s.lines = append(s.lines, at)
	}
	return s
}

// breakLength is that of the line break at the beginning of text, by YAML 1.1, which the parser follows; 0 without one.
func breakLength(text []byte) int {
	switch {
	case len(text) == 0:
		return 0
	case text[0] == '\n':
		return 1
	case text[0] == '\r':
		if len(text) > 1 && text[1] == '\n' {
			return 2
		}
		return 1
	case bytes.HasPrefix(text, []byte("\u0085")):
		return len("\u0085")
	case bytes.HasPrefix(text, []byte("\u2028")), bytes.HasPrefix(text, []byte("\u2029")):
		return len("\u2028")
	}
	return 0
}

// lineStart is where the line begins that at is in.
func (s *source) lineStart(at int) int {
	i := sort.SearchInts(s.lines, at+1) - 1
	return s.lines[max(i, 0)]
}

// nextLine is where the line after it begins, or the end of the text.
func (s *source) nextLine(at int) int {
	i := sort.SearchInts(s.lines, at+1)
	if i < len(s.lines) {
		return s.lines[i]
	}
	return len(s.text)
}

// lineEnd is where the line ends that at is in, before its line break.
func (s *source) lineEnd(at int) int {
	for at < len(s.text) && breakLength(s.text[at:]) == 0 {
		at++
	}
	return at
}

// column counts from 0, in bytes; before block collections there is nothing but ASCII in a line.
func (s *source) column(at int) int { return at - s.lineStart(at) }

// before is what its line has before at.
func (s *source) before(at int) string { return string(s.text[s.lineStart(at):at]) }

// beginsLine says whether there are only blanks before at in its line.
func (s *source) beginsLine(at int) bool { return strings.Trim(s.before(at), " \t") == "" }

// indentation is what the line of at begins with.
func (s *source) indentation(at int) string {
	start := s.lineStart(at)
	end := start
	for end < at && (s.text[end] == ' ' || s.text[end] == '\t') {
		end++
	}
	return string(s.text[start:end])
}

func (s *source) byteAt(at int) byte {
	if at < 0 || at >= len(s.text) {
		return 0
	}
	return s.text[at]
}

// offset is where a node begins, its anchor and tag included.
func (s *source) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(s.lines) {
		return len(s.text)
	}
	at := s.lines[n.Line-1]
	for range n.Column - 1 {
		if at >= len(s.text) {
			break
		}
		_, size := utf8.DecodeRune(s.text[at:])
		at += size
	}
	return at
}

// start is where a node begins behind its anchor and tag.
func (s *source) start(n *yaml.Node) int {
	at := s.offset(n)
	if n.Kind == yaml.AliasNode {
		return at
	}
	for s.byteAt(at) == '&' || s.byteAt(at) == '!' {
		for at < len(s.text) && !bytes.ContainsAny(s.text[at:at+1], " \t\r\n,[]{}") {
			at++
		}
		if n.Kind == yaml.ScalarNode && n.Value == "" && n.Style&^yaml.TaggedStyle == 0 {
			// Nothing may follow.
			if next := s.skip(at, " \t"); s.byteAt(next) != '&' && s.byteAt(next) != '!' {
				return at
			}
		}
		at = s.skipSpace(at, "")
	}
	return at
}

func (s *source) skip(at int, what string) int {
	for at < len(s.text) && strings.IndexByte(what, s.text[at]) >= 0 {
		at++
	}
	return at
}

// skipBack is behind what comes before at, blanks and line breaks aside.
func (s *source) skipBack(at int) int {
	for at > 0 && isSpace(s.text[at-1]) {
		at--
	}
	return at
}

// skipSpace skips blanks, line breaks, comments, and what else is in also.
func (s *source) skipSpace(at int, also string) int {
	for at < len(s.text) {
		switch b := s.text[at]; {
		case breakLength(s.text[at:]) > 0:
			at += breakLength(s.text[at:])
		case b == '#' && isSpace(s.byteAt(at-1)):
			at = s.lineEnd(at)
		case b == ' ' || b == '\t' || strings.IndexByte(also, b) >= 0:
			at++
		default:
			return at
		}
	}
	return at
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' || b == 0 }

// edit replaces a part of the text.
type edit struct {
	from, to int
	text     string
}

// apply makes edits, which must not overlap. Of those at the same place the insertions come first, in their order.
func (s *source) apply(edits []edit) ([]byte, error) {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return min(a.to-a.from, 1) - min(b.to-b.from, 1)
	})
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		if e.from < at || e.to < e.from || e.to > len(s.text) {
			return nil, fmt.Errorf("changes of bytes %d to %d overlap others", e.from, e.to)
		}
		out.Write(s.text[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(s.text[at:])
	return out.Bytes(), nil
}
