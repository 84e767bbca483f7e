// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert turns manifests with the qosResources fields of KEP-3008 into manifests for stock Kubernetes, with extended resources
// and annotations. It edits YAML and JSON with kyaml: comments and the order of fields are kept, blank lines and indentation are
// normalized. A document without these fields is copied byte by byte.
package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// fieldName is the KEP's field in objects of the Kubernetes API.
const fieldName = "qosResources"

// Result is a converted file.
type Result struct {
	// Text is the original text when there was nothing to convert.
	Text []byte
	// Notes are one-sentence warnings for the user, without duplicates.
	Notes []string
}

type problem struct {
	line int
	text string
}

func (p problem) Error() string { return p.text }

// Convert converts the manifests of a file, YAML or JSON. name is the file's name, for errors. A text without the KEP's fields is
// returned unchanged, even if it is not YAML. Converting a result again changes nothing. The error joins all problems, one line
// each: file, line, object, field, state and remedy.
func Convert(name string, text []byte, known Known) (Result, error) {
	if !bytes.Contains(text, []byte(fieldName)) {
		return Result{Text: text}, nil
	}

	f := readFile(name, text, known)
	return f.convert()
}

type file struct {
	name      string
	known     Known
	documents []*document
	problems  []problem
	notes     []string
}

type place struct {
	line          int
	object, field string
}

// at returns the place of a node below p, with path appended to the field.
func (p place) at(n *yaml.Node, path string) place {
	p.line = n.Line
	p.field = strings.TrimPrefix(p.field+path, ".")
	return p
}

// fault adds a problem once. The line of a place is 0 when unknown.
func (f *file) fault(at place, format string, args ...any) {
	file := f.name
	if at.line > 0 {
		file += ":" + strconv.Itoa(at.line)
	}

	parts := []string{file, at.object, at.field, fmt.Sprintf(format, args...)}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	p := problem{at.line, strings.Join(parts, ": ")}
	if !slices.Contains(f.problems, p) {
		f.problems = append(f.problems, p)
	}
}

func (f *file) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(f.notes, text) {
		f.notes = append(f.notes, text)
	}
}

// readFile parses the documents of a file. Documents that cannot be parsed become problems.
func readFile(name string, text []byte, known Known) *file {
	f := &file{name: name, known: known, documents: splitDocuments(text)}
	for _, d := range f.documents {
		d.file = f
		d.parse()
	}
	return f
}

// convert plans the edits of all documents, and makes them if there are no problems.
func (f *file) convert() (Result, error) {
	for _, d := range f.documents {
		if root := d.content(); root != nil {
			d.walk(root, place{line: root.Line})
		}
	}
	if err := f.err(); err != nil {
		return Result{}, err
	}

	var out []byte
	for _, d := range f.documents {
		out = append(out, d.rewrite()...)
	}
	if err := f.err(); err != nil {
		return Result{}, err
	}
	return Result{Text: out, Notes: f.notes}, nil
}

func (f *file) err() error {
	slices.SortStableFunc(f.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, p := range f.problems {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}
