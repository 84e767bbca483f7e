// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// rewrite makes the edits of a document and returns the new bytes. If there are no edits, it returns the original
// bytes. It reports errors as problems of the file.
func (d *document) rewrite() []byte {
	if len(d.edits) == 0 {
		return d.raw
	}
	for _, edit := range d.edits {
		edit()
	}

	out := slices.Clone(d.head)
	for i, root := range append([]*yaml.Node{d.root}, d.added...) {
		text, err := d.encode(root)
		if err != nil {
			d.fault(place{line: d.line}, "the result cannot be encoded as YAML (%s); rewrite the document without tags, in block style", oneLine(err.Error()))
			return nil
		}
		if i > 0 {
			out = append(out, "---"+newline(d.raw)...)
		}
		out = append(out, bytes.ReplaceAll(text, []byte("\n"), []byte(newline(d.raw)))...)
	}
	d.checkComments(out)

	if !bytes.HasSuffix(d.raw, []byte("\n")) {
		out = bytes.TrimSuffix(out, []byte(newline(d.raw)))
	}
	return out
}

// encode writes a node in the format of its document. It verifies that parsing the result gives an equal node.
func (d *document) encode(root *yaml.Node) ([]byte, error) {
	if d.json {
		return d.encodeJSON(root)
	}

	style := yaml.SequenceIndentStyle(yaml.DeriveSeqIndentStyle(string(d.body)))
	for range 2 {
		text, err := yaml.MarshalWithOptions(root, &yaml.EncoderOptions{SeqIndent: style})
		if err != nil {
			return nil, err
		}
		if got, err := parseText(text, false); err == nil && got != nil && equal(got.Content[0], root.Content[0]) {
			return text, nil
		}
		unfold(root) // the encoder may add blank lines to folded scalars
	}
	return nil, errors.New("the output would differ in meaning from the input")
}

func unfold(n *yaml.Node) {
	if n.Style&yaml.FoldedStyle != 0 {
		n.Style = yaml.LiteralStyle
	}
	for _, child := range n.Content {
		unfold(child)
	}
}

var jsonIndent = regexp.MustCompile(`^\s*\{\r?\n([ \t]+)`)

// encodeJSON writes JSON with the indentation of the original document. A document that has only one line stays on one line.
func (d *document) encodeJSON(root *yaml.Node) ([]byte, error) {
	text := appendJSON(nil, root.Content[0])
	if indent := jsonIndent.FindSubmatch(d.body); indent != nil {
		var out bytes.Buffer
		err := json.Indent(&out, text, "", string(indent[1]))
		return append(out.Bytes(), '\n'), err
	}
	return append(text, '\n'), nil
}

func appendJSON(out []byte, n *yaml.Node) []byte {
	brackets, separators := "[]", ","
	switch {
	case isMapping(n):
		brackets, separators = "{}", ":,"
	case !isList(n) && n.ShortTag() == yaml.NodeTagString:
		text, _ := json.Marshal(n.Value) //nolint:errchkjson // a string can always be encoded
		return append(out, text...)
	case !isList(n):
		return append(out, n.Value...)
	}

	out = append(out, brackets[0])
	for i, child := range n.Content {
		if i > 0 {
			out = append(out, separators[(i-1)%len(separators)])
		}
		out = appendJSON(out, child)
	}
	return append(out, brackets[1])
}

// equal reports whether two nodes have the same content. The order of fields matters. The style and the comments do not matter.
func equal(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Value == b.Value && a.ShortTag() == b.ShortTag() && slices.EqualFunc(a.Content, b.Content, equal)
}

// comment matches a YAML comment. It also matches a scalar's text that looks like a comment, so checkComments skips the
// lines of scalars that have a "#".
var comment = regexp.MustCompile(`(?:^|\s)#.*`)

// checkComments reports comments that are missing from the result. The YAML library drops comments between "[" and
// "]" and between "{" and "}".
func (d *document) checkComments(out []byte) {
	if d.json {
		return
	}

	result, scalars := lettersOf(out), map[int]bool{}
	findHashes(d.root, scalars)
	line := d.line
	for text := range bytes.Lines(d.body) {
		if found := comment.Find(text); !scalars[line] && !bytes.Contains(result, lettersOf(found)) {
			d.fault(place{line: line}, "the comment %s would be lost; move it out of the [] or {} around it", quote(string(bytes.TrimSpace(found))))
		}
		line++
	}
}

func findHashes(n *yaml.Node, lines map[int]bool) {
	if strings.Contains(n.Value, "#") {
		lines[n.Line] = true
	}
	for _, child := range n.Content {
		findHashes(child, lines)
	}
}

// lettersOf returns the letters and digits of a text. Unlike spaces and punctuation, they stay the same when a
// text is formatted.
func lettersOf(text []byte) []byte {
	return bytes.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
}
