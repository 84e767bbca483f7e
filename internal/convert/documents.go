// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const byteOrderMark = "\ufeff"

type document struct {
	*file
	// raw has all bytes of the document. `head` has the line with the marker "---". `body` has
	// the bytes after `head`, and the field `line` has the number of body's first line.
	raw, head, body []byte
	line            int

	// root is the document node. It is nil if the document has no content.
	root *yaml.Node
	// nodes is the number of nodes in root after the aliases are expanded.
	nodes int
	json  bool
	// The map `lists` maps each element of a YAML list to this list. The map `handled` has the keys of the KEP fields
	// that were read or reported before, so that these fields cause no further error.
	lists   map[*yaml.Node]*yaml.Node
	handled map[*yaml.Node]bool
	// ofPods has the annotations of pods and pod templates.
	ofPods map[*yaml.Node]bool

	// edits has functions that change root. `added` has new documents, written after this document.
	edits []func()
	added []*yaml.Node
}

// later plans an edit. The edits are made only after the whole file was read without problems.
func (d *document) later(edit func()) { d.edits = append(d.edits, edit) }

var marker = regexp.MustCompile(`(?m)^---(?:\s|$)`)

// splitDocuments splits a text into documents. It drops no byte of the text.
func splitDocuments(text []byte) []*document {
	var all []*document
	start, line := 0, 1
	for _, next := range append(marker.FindAllIndex(text, -1), []int{len(text)}) {
		if end := next[0]; end > start {
			all = append(all, newDocument(text[start:end], line))
			line += bytes.Count(text[start:end], []byte("\n"))
			start = end
		}
	}
	return all
}

// newDocument makes a document. If nothing or only a comment follows the marker "---", the line of the marker becomes
// the head, and the body starts on the next line. If content follows, the line stays in the body, so that the parser
// reports content that YAML forbids there, such as a block mapping. The head is then a marker alone, so an edited
// document gets its content on the next line.
func newDocument(raw []byte, line int) *document {
	body := bytes.TrimPrefix(raw, []byte(byteOrderMark))
	d := &document{raw: raw, head: raw[:len(raw)-len(body)], body: body, line: line}
	if !marker.Match(body) {
		return d
	}

	first, rest, _ := bytes.Cut(body, []byte("\n"))
	if behind := bytes.TrimSpace(first[len("---"):]); len(behind) == 0 || behind[0] == '#' {
		d.head, d.body, d.line = raw[:len(raw)-len(rest)], rest, line+1
	} else {
		d.head = []byte("---" + newline(raw))
	}
	return d
}

// newline returns the line ending that the first line of a text has.
func newline(text []byte) string {
	if line, _, found := bytes.Cut(text, []byte("\n")); found && bytes.HasSuffix(line, []byte("\r")) {
		return "\r\n"
	}
	return "\n"
}

// Join joins texts to one stream of documents. A single text is returned unchanged.
func Join(texts [][]byte) []byte {
	if len(texts) == 1 {
		return texts[0]
	}

	var out []byte
	for _, text := range texts {
		text = bytes.TrimPrefix(text, []byte(byteOrderMark))
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		if len(out) > 0 {
			out = append(out, separator(text)...)
		}
		out = append(out, text...)
		if !bytes.HasSuffix(text, []byte("\n")) {
			out = append(out, newline(text)...)
		}
	}
	return out
}

// beginning matches the start of the first line that is not a comment.
var beginning = regexp.MustCompile(`(?m)^(---|%|\s*[^\s#])`)

func separator(text []byte) string {
	switch string(beginning.Find(text)) {
	case "---":
		return ""
	case "%": // before a directive, the previous document must be ended with "..."
		return "..." + newline(text)
	}
	return "---" + newline(text)
}

// maxNodes + maxNodesPerByte*bytes is the maximum number of nodes in a document after its aliases are expanded.
const (
	maxNodes        = 1 << 16
	maxNodesPerByte = 4
)

func (d *document) parse() {
	d.lists, d.handled, d.ofPods = map[*yaml.Node]*yaml.Node{}, map[*yaml.Node]bool{}, map[*yaml.Node]bool{}
	d.json = json.Valid(d.body)
	root, err := parseText(d.body, d.json)
	if root != nil {
		addLines(root, d.line-1)
	}

	switch {
	case err != nil:
		d.faultSyntax(err)
	case root != nil && !d.expandAliases(root, nil):
		d.fault(place{line: root.Content[0].Line}, "aliases make the document too large; write the document without aliases")
	default:
		d.root = root
	}
}

func (d *document) content() *yaml.Node {
	if d.root == nil {
		return nil
	}
	return d.root.Content[0]
}

func parseText(text []byte, isJSON bool) (*yaml.Node, error) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("%")) {
		return nil, nil // the document has only directives; their content follows after the next marker
	}
	if isJSON {
		text = escapeForYAML(text)
	}

	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, errors.New("a second document has no --- line before it"))
	}
	return &root, nil
}

func addLines(n *yaml.Node, lines int) {
	n.Line += lines
	for _, child := range n.Content {
		addLines(child, lines)
	}
}

// yamlLine matches an error text of the YAML parser, and finds the line number in it.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)`)

func (d *document) faultSyntax(err error) {
	text, line := err.Error(), 0
	if parts := yamlLine.FindStringSubmatch(text); parts != nil {
		if number, err := strconv.Atoi(parts[1]); err == nil {
			line = number + d.line - 1
		}
		text = parts[2]
	}

	remedy := "; correct it"
	switch {
	case bytes.Contains(d.raw, []byte("{{")):
		remedy = "; render the templates first"
	case bytes.HasPrefix(bytes.TrimSpace(d.body), []byte("{")):
		remedy = "; put several JSON objects into a List, or separate them with lines of ---"
	}
	d.fault(place{line: line}, "is not YAML or JSON: %s%s", oneLine(text), remedy)
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }

// unlikeYAML matches the parts of JSON strings that a YAML parser refuses or changes. It also matches an escaped
// backslash, so that the second backslash is not read as the beginning of an escape.
var unlikeYAML = regexp.MustCompile(`(?i)\\\\|\\/|\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|[\x{7f}-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]`)

// escapeForYAML rewrites the strings of a JSON text so that a YAML parser reads the values that a JSON parser reads.
func escapeForYAML(text []byte) []byte {
	return unlikeYAML.ReplaceAllFunc(text, func(part []byte) []byte {
		var meant string
		if err := json.Unmarshal([]byte(`"`+string(part)+`"`), &meant); err != nil || meant == `\` {
			return part
		}
		char, _ := utf8.DecodeRuneInString(meant)
		return fmt.Appendf(nil, `\U%08X`, char)
	})
}

// expandAliases replaces the aliases below `n` by copies of their targets, removes anchors, and fills `lists`. `above` has the
// ancestors of `n`. The result is false if an alias refers to its own ancestor, or if there are too many nodes.
func (d *document) expandAliases(n *yaml.Node, above []*yaml.Node) bool {
	above = append(above, n)
	n.Anchor = ""
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			if slices.Contains(above, child.Alias) {
				return false
			}
			n.Content[i] = yaml.CopyYNode(child.Alias)
			n.Content[i].HeadComment, n.Content[i].LineComment, n.Content[i].FootComment = child.HeadComment, child.LineComment, child.FootComment
		}
		if isList(n) {
			d.lists[n.Content[i]] = n
		}
		if d.nodes++; d.nodes > maxNodes+maxNodesPerByte*len(d.body) || !d.expandAliases(n.Content[i], above) {
			return false
		}
	}
	return true
}
