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
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// How many nodes a document may have after its aliases are expanded: this many, and some for each byte.
const (
	maxNodes        = 1 << 16
	maxNodesPerByte = 4
)

// parse reads the content of a document. Errors become problems.
func (d *document) parse() {
	d.lists, d.handled = map[*yaml.Node]*yaml.Node{}, map[*yaml.Node]bool{}
	d.json = json.Valid(d.body)
	root, err := parseText(d.body, d.line, d.json)
	nodes := maxNodes + maxNodesPerByte*len(d.body)
	switch {
	case err != nil:
		d.faultSyntax(err)
	case root != nil && !expandAliases(root, &nodes):
		d.fault(place{line: root.Content[0].Line}, "aliases make the document endless, or too large; write it without them")
	default:
		d.root = root
	}
}

// content returns the node of a document's content; nil without content.
func (d *document) content() *yaml.Node {
	if d.root == nil {
		return nil
	}
	return d.root.Content[0]
}

// parseText parses a document, whose first line has this number; nil without content.
func parseText(text []byte, line int, isJSON bool) (*yaml.Node, error) {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("%")) {
		return nil, nil // directives: the content begins after the next marker
	}
	if isJSON {
		text = escapeForYAML(text)
	}
	// Empty lines give nodes and errors the right line numbers.
	decoder := yaml.NewDecoder(io.MultiReader(strings.NewReader(strings.Repeat("\n", line-1)), bytes.NewReader(text)))

	var root yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, errors.New("there is a second document without --- on a line before"))
	}
	return &root, nil
}

// yamlLine matches the errors of the parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)`)

func (d *document) faultSyntax(err error) {
	text, line := err.Error(), 0
	if parts := yamlLine.FindStringSubmatch(text); parts != nil {
		line, _ = strconv.Atoi(parts[1])
		text = parts[2]
	}
	remedy := "; correct it"
	switch {
	case bytes.Contains(d.raw, []byte("{{")):
		remedy = "; render templates before"
	case bytes.HasPrefix(bytes.TrimSpace(d.body), []byte("{")):
		remedy = "; put several JSON objects into a List, or --- between them"
	}
	d.fault(place{line: line}, "is not YAML or JSON: %s%s", oneLine(text), remedy)
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }

// unlikeYAML matches what JSON strings may have and a YAML parser refuses or changes; an escaped backslash is matched to skip it.
var unlikeYAML = regexp.MustCompile(`\\\\|\\/|\\u[dD][89abAB][[:xdigit:]]{2}\\u[dD][c-fC-F][[:xdigit:]]{2}|[\x{7f}-\x{9f}\x{2028}\x{2029}\x{feff}\x{fffe}\x{ffff}]`)

// escapeForYAML rewrites the strings of a JSON text so that a YAML parser reads them as they are meant.
func escapeForYAML(text []byte) []byte {
	return unlikeYAML.ReplaceAllFunc(text, func(part []byte) []byte {
		var meant string
		if err := json.Unmarshal([]byte(`"`+string(part)+`"`), &meant); err != nil || meant == `\` {
			return part
		}
		return fmt.Appendf(nil, `\U%08X`, []rune(meant)[0])
	})
}

// expandAliases replaces aliases by copies of what they refer to, and removes anchors. It returns false when there are more nodes than
// allowed, as in an anchor with an alias of itself.
func expandAliases(n *yaml.Node, allowed *int) bool {
	n.Anchor = ""
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			n.Content[i] = yaml.CopyYNode(child.Alias)
			n.Content[i].HeadComment, n.Content[i].LineComment, n.Content[i].FootComment = child.HeadComment, child.LineComment, child.FootComment
		}
		if *allowed--; *allowed < 0 || !expandAliases(n.Content[i], allowed) {
			return false
		}
	}
	return true
}
