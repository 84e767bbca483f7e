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

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// fieldName is the KEP's field in objects of the Kubernetes API.
const fieldName = "qosResources"

// Result is a converted file.
type Result struct {
	// Text is the original text when there was nothing to convert.
	Text []byte
	// Notes are sentences about what a user may not expect, each one once.
	Notes []string
}

// Problem is a reason why a file cannot be converted.
type Problem struct {
	File string
	// Line counts from 1; 0 is unknown.
	Line int
	// Object has kind and name; empty outside of an object.
	Object string
	// Field is the path of the field in the object; empty is the object itself.
	Field string
	// Text is the state and the remedy.
	Text string
}

func (p *Problem) Error() string {
	file := p.File
	if p.Line > 0 {
		file += ":" + strconv.Itoa(p.Line)
	}
	parts := []string{file, p.Object, p.Field, p.Text}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// Convert converts the manifests of a file, YAML or JSON. name is the file's name, for errors. A text without the KEP's fields is
// returned as it is, even if it is not YAML; converting a result again changes nothing. The error joins all problems, each a *Problem.
func Convert(name string, text []byte, known Known) (Result, error) {
	if !bytes.Contains(text, []byte(fieldName)) {
		return Result{Text: text}, nil
	}

	f := readFile(name, text, known)
	return f.convert()
}

// file is a file that is converted.
type file struct {
	name      string
	known     Known
	documents []*document
	problems  []Problem
	notes     []string
}

// place is where something is in a file.
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

func (f *file) fault(at place, format string, args ...any) {
	problem := Problem{f.name, at.line, at.object, at.field, fmt.Sprintf(format, args...)}
	if !slices.Contains(f.problems, problem) {
		f.problems = append(f.problems, problem)
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

// err joins the problems in the order of lines.
func (f *file) err() error {
	slices.SortStableFunc(f.problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	var errs []error
	for i := range f.problems {
		errs = append(errs, &f.problems[i])
	}
	return errors.Join(errs...)
}
