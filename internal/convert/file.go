// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fieldName is that of the KEP's field in the objects of the Kubernetes API.
const fieldName = "qosResources"

// Result is a converted text.
type Result struct {
	// Text is the one that came in where there was nothing to convert.
	Text []byte
	// Notes are sentences about what a reader may not expect; no two are the same.
	Notes []string
}

// Problem is one reason why a text cannot be converted.
type Problem struct {
	File string
	// Line counts from 1; 0 is unknown.
	Line int
	// Object has kind and name; empty outside of one.
	Object string
	// Field is the path of the field in the object; empty is all of it.
	Field string
	// Text says what is wrong, and what to do.
	Text string
}

func (p *Problem) Error() string {
	var text strings.Builder
	text.WriteString(p.File)
	if p.Line > 0 {
		text.WriteString(":" + strconv.Itoa(p.Line))
	}
	for _, part := range []string{p.Object, p.Field, p.Text} {
		if part != "" {
			text.WriteString(": " + part)
		}
	}
	return text.String()
}

// Convert turns the manifests of a text, YAML or JSON, into what stock Kubernetes takes. name is that of the file, for errors. A text
// without the KEP's fields comes out as it is, whatever it is; and so does one that was converted. The error joins all
// problems, each a *Problem.
func Convert(name string, text []byte, known Known) (Result, error) {
	if !bytes.Contains(text, []byte(fieldName)) {
		return Result{Text: text}, nil
	}
	f := newFile(name, text, known)
	f.parse()
	return f.convert()
}

// file is a text on its way.
type file struct {
	*source
	name string
	// unended is true when the last line of the text that came had no end, which source has nevertheless.
	unended   bool
	known     Known
	documents []*document
	problems  []*Problem
	notes     []string

	// changes are what to do when there are no problems; they make edits of the text, and models, which change the nodes.
	changes []*change
	edits   []edit
	models  []func()
}

func newFile(name string, text []byte, known Known) *file {
	f := &file{source: newSource(text), name: name, known: known}
	if n := len(text); n > 0 && text[n-1] != '\n' && text[n-1] != '\r' {
		f.source = newSource(append(bytes.Clone(text), f.newline...))
		f.unended = true
	}
	return f
}

// document is one of the documents in a file.
type document struct {
	*file
	root *yaml.Node
	// follow is a document that comes behind this one.
	follow *yaml.Node
	// json documents have keys in quotes.
	json bool
	// step is the indentation of a level, in blanks.
	step int
	// paths are the ways from the root to a node; more than one if there are aliases.
	paths map[*yaml.Node]int
	// planned are the changes of this document, by what they change.
	planned map[changeKey]*change
}

// change is one that is to be made in a node, wherever the node is used.
type change struct {
	place
	document *document
	target   *yaml.Node
	uses     int
	do       func()
}

type changeKey struct {
	target *yaml.Node
	what   string
}

// place is where in a file something is.
type place struct {
	line          int
	object, field string
}

func (p place) at(n *yaml.Node, path string) place {
	p.line = n.Line
	p.field = strings.TrimPrefix(p.field+path, ".")
	return p
}

func (f *file) fault(at place, format string, args ...any) {
	f.problems = append(f.problems, &Problem{f.name, at.line, at.object, at.field, fmt.Sprintf(format, args...)})
}

func (f *file) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.notes, text) {
		f.notes = append(f.notes, text)
	}
}

// plan notes a change of a node. A node with several ways to it must be changed in the same way on each: what says what the change is.
func (d *document) plan(at place, target *yaml.Node, what string, do func()) {
	key := changeKey{target, what}
	c, ok := d.planned[key]
	if !ok {
		c = &change{place: at, document: d, target: target, do: do}
		d.planned[key] = c
		d.changes = append(d.changes, c)
	}
	c.uses++
}

// parse reads the documents, those that can be gone through.
func (f *file) parse() {
	roots, err := parse(f.text)
	if err != nil {
		f.illegible(err)
	}
	for _, root := range roots {
		d := &document{file: f, root: root, paths: map[*yaml.Node]int{}, planned: map[changeKey]*change{}}
		d.step = stepOf(root)
		d.json = isFlow(root) && len(root.Content) > 0 && f.byteAt(f.offset(root.Content[0])) == '"'
		if d.countPaths() {
			f.documents = append(f.documents, d)
		}
	}
}

func (f *file) convert() (Result, error) {
	for _, d := range f.documents {
		d.walk(d.root, place{line: d.root.Line})
	}
	f.checkUses()
	if err := f.err(); err != nil {
		return Result{}, err
	}
	for _, c := range f.changes {
		c.do()
	}
	text, err := f.rewrite()
	if err != nil {
		f.fault(f.changes[0].place, "cannot be changed safely (%s); write it without anchors, and in plain block style", oneLine(err.Error()))
		return Result{}, f.err()
	}
	if f.unended {
		text = bytes.TrimSuffix(text, []byte(f.newline))
	}
	return Result{Text: text, Notes: f.notes}, nil
}

// checkUses refuses changes of what is used elsewhere in a way in which it would not be changed.
func (f *file) checkUses() {
	for _, c := range f.changes {
		if ways := c.document.paths[c.target]; c.uses != ways {
			f.fault(c.place, "is in an anchor that is used in %d places, and would be right in %d of them; write it out in each place", ways, c.uses)
		}
	}
}

func (f *file) err() error {
	slices.SortStableFunc(f.problems, func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
	var errs []error
	said := map[Problem]bool{}
	for _, p := range f.problems {
		if !said[*p] {
			said[*p] = true
			errs = append(errs, p)
		}
	}
	return errors.Join(errs...)
}

// rewrite makes the new text, and sees that it is read as what it should be.
func (f *file) rewrite() ([]byte, error) {
	if len(f.changes) == 0 {
		return f.text, nil
	}
	out, err := f.apply(f.edits)
	if err != nil {
		return nil, err
	}
	for _, change := range f.models {
		change()
	}
	var want []*yaml.Node
	for _, d := range f.documents {
		want = append(want, d.root)
		if d.follow != nil {
			want = append(want, d.follow)
		}
	}
	got, err := parse(out)
	if err != nil {
		return nil, err
	}
	if !slices.EqualFunc(want, got, equal) {
		return nil, errors.New("the result would be read differently")
	}
	return out, nil
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", " ") }
