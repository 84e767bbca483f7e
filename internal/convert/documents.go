// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"regexp"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const byteOrderMark = "\ufeff"

// document is one of the documents in a file.
type document struct {
	*file
	// raw has all bytes of the document: head is the line with the marker "---", body is what follows, from this line on.
	raw, head, body []byte
	line            int

	// root is the document node; nil without content.
	root *yaml.Node
	json bool
	// lists has the list that an element is in, handled the keys of the KEP's fields that were read or reported.
	lists   map[*yaml.Node]*yaml.Node
	handled map[*yaml.Node]bool

	// edits change root. added are documents to write after this one.
	edits []func()
	added []*yaml.Node
}

// later plans an edit. Edits are made when the whole file was read without problems.
func (d *document) later(edit func()) { d.edits = append(d.edits, edit) }

// marker matches the beginning of a document.
var marker = regexp.MustCompile(`(?m)^---(?:\s|$)`)

// splitDocuments cuts a text into documents; together they have all of its bytes.
func splitDocuments(text []byte) []*document {
	starts := []int{0}
	for _, found := range marker.FindAllIndex(text, -1) {
		if found[0] > 0 {
			starts = append(starts, found[0])
		}
	}

	var all []*document
	line := 1
	for i, start := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		all = append(all, newDocument(text[start:end], line))
		line += bytes.Count(text[start:end], []byte("\n"))
	}
	return all
}

// newDocument takes the marker "---", which may have a comment or content behind it, from the beginning of a document.
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
		d.head, d.body = []byte("---"+newline(raw)), body[len("---"):]
	}
	return d
}

// newline returns how lines of a text end, as the first one does.
func newline(text []byte) string {
	if line, _, found := bytes.Cut(text, []byte("\n")); found && bytes.HasSuffix(line, []byte("\r")) {
		return "\r\n"
	}
	return "\n"
}

// Join joins several texts to one stream of documents. A single text is returned as it is.
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

// beginning matches the first line that is not a comment.
var beginning = regexp.MustCompile(`(?m)^(---|%|\s*[^\s#])`)

// separator returns the line to write before a text that is not the first one.
func separator(text []byte) string {
	switch string(beginning.Find(text)) {
	case "---":
		return ""
	case "%": // a directive needs the end of the document before
		return "..." + newline(text)
	}
	return "---" + newline(text)
}
