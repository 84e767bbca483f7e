// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parse has the top node of each document.
func parse(text []byte) ([]*yaml.Node, error) {
	isJSON := beginsAsJSON(text)
	if isJSON {
		text = escapesOfYAML(text)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var roots []*yaml.Node
	for {
		var n yaml.Node
		err := decoder.Decode(&n)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return roots, err
		}
		if len(n.Content) == 1 {
			if isJSON {
				restoreSlashes(n.Content[0])
			}
			roots = append(roots, n.Content[0])
		}
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)`)

func (f *file) illegible(err error) {
	text, line := err.Error(), 0
	if parts := yamlLine.FindStringSubmatch(text); parts != nil {
		line, _ = strconv.Atoi(parts[1])
		text = parts[2]
	}
	remedy := "; correct it"
	switch {
	case bytes.Contains(f.text, []byte("{{")):
		remedy = "; render templates before"
	case beginsAsJSON(f.text):
		remedy = "; put several JSON objects into a List, or --- between them"
	}
	f.fault(place{line: line}, "is not YAML or JSON: %s%s", oneLine(text), remedy)
}

// beginsAsJSON says whether a text may be JSON, all of it.
func beginsAsJSON(text []byte) bool {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte(byteOrderMark)))
	return bytes.HasPrefix(text, []byte("{"))
}

// slash stands for the "/" of an escape that JSON has and the parser has not.
const slash = "\u2029"

// escapesOfYAML puts escapes that the parser knows in the place of those that only JSON has, of the same length: another character for
// a "/", and for each half of a character in UTF-16 one from the private use area. The nodes are compared and searched, and their text
// is never written, so that it is enough for different texts to stay different.
func escapesOfYAML(text []byte) []byte {
	text = bytes.Clone(text)
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		switch {
		case text[i] == '/':
			text[i] = 'P'
		case text[i] == 'u' && i+2 < len(text) && (text[i+1] == 'd' || text[i+1] == 'D') && strings.IndexByte("89abcdefABCDEF", text[i+2]) >= 0:
			text[i+1] = 'e'
		}
	}
	return text
}

func restoreSlashes(n *yaml.Node) {
	if n.Style&yaml.DoubleQuotedStyle != 0 {
		n.Value = strings.ReplaceAll(n.Value, slash, "/")
	}
	for _, child := range n.Content {
		restoreSlashes(child)
	}
}
