// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is a value in a class file, with its place in the file. A Kind reads its section of the file with the methods of
// Field.
//
// If the value does not have the type that a method reads, the method reports a problem and returns nothing. The caller
// then continues, so that all problems of a file are reported at once. A nil Field is a field that is missing in the
// file. Its methods report nothing.
type Field struct {
	// Name is the key in a mapping. It is empty for an element of a list.
	Name string

	document *document
	parent   *Field
	index    int
	// line is the line of the key in a mapping, or of the element in a list.
	line int
	// node is the YAML node of the value. It is never an alias.
	node *yaml.Node
	// children has the values of a mapping or list, in the order of the file.
	children []*Field
}

// File returns the name of the file.
func (f *Field) File() string { return f.document.file }

// Line returns the line of the field, counted from 1.
func (f *Field) Line() int { return f.line }

// Path returns the path from the top of the file to the field, as in "resources[0].classes[1].name".
func (f *Field) Path() string {
	var parts []string
	for ; f.parent != nil; f = f.parent {
		switch {
		case f.parent.node.Kind == yaml.SequenceNode:
			parts = append(parts, "["+strconv.Itoa(f.index)+"]")
		case f.parent.parent == nil:
			parts = append(parts, clip(f.Name))
		default:
			parts = append(parts, "."+clip(f.Name))
		}
	}
	slices.Reverse(parts)

	return strings.Join(parts, "")
}

// Report adds a problem of the field to the file's problems.
func (f *Field) Report(format string, args ...any) {
	f.document.report(f.line, f.Path(), format, args...)
}

// reportMissing adds a problem about a field that the mapping `f` should have.
func (f *Field) reportMissing(name, format string, args ...any) {
	missing := Field{Name: name, document: f.document, parent: f, line: f.line}
	missing.Report(format, args...)
}

// IsNull reports whether the field has no value.
func (f *Field) IsNull() bool { return f.node.Kind == yaml.ScalarNode && f.node.ShortTag() == "!!null" }

// IsList reports whether the value is a list.
func (f *Field) IsList() bool { return f.node.Kind == yaml.SequenceNode }

// IsScalar reports whether the value is a single value, like a string or a number.
func (f *Field) IsScalar() bool { return f.node.Kind == yaml.ScalarNode && !f.IsNull() }

func (f *Field) isMapping() bool { return f.node.Kind == yaml.MappingNode }

// Fields returns the known fields of a mapping by name, and reports unknown fields. As in Go's encoding/json, the case
// of a name does not matter, and null counts as an empty mapping.
func (f *Field) Fields(known ...string) map[string]*Field {
	if f == nil || f.IsNull() {
		return map[string]*Field{}
	}
	return f.match(strings.EqualFold, known)
}

// ExactFields is like Fields, but the case of a name matters, and null is a problem. A field that is missing has no fields.
func (f *Field) ExactFields(known ...string) map[string]*Field {
	if f == nil {
		return nil
	}
	return f.match(func(a, b string) bool { return a == b }, known)
}

func (f *Field) match(same func(a, b string) bool, known []string) map[string]*Field {
	if !f.isMapping() {
		f.Report("must be a mapping with the fields %s, not %s", strings.Join(known, ", "), f.describe())
		return nil
	}

	fields := make(map[string]*Field, len(known))
	for _, child := range f.children {
		i := slices.IndexFunc(known, func(name string) bool { return same(name, child.Name) })
		switch {
		case i < 0:
			child.Report("unknown field%s; the known fields are %s", Suggestion(child.Name, known), list(known))
		case fields[known[i]] != nil:
			child.reportDuplicate(fields[known[i]])
		default:
			fields[known[i]] = child
		}
	}
	return fields
}

func (f *Field) reportDuplicate(first *Field) {
	f.Report("is defined twice; the first is in line %d", first.line)
}

// child returns the field with this name in the mapping `f`, or nil.
func (f *Field) child(name string) *Field {
	for _, child := range f.children {
		if f.isMapping() && child.Name == name {
			return child
		}
	}
	return nil
}

// Entries returns the fields of a mapping in the order of the file. Unlike Fields, it accepts any keys. Null counts as
// an empty mapping.
func (f *Field) Entries() []*Field {
	if f == nil || f.IsNull() {
		return nil
	}
	if !f.isMapping() {
		f.Report("must be a mapping, not %s", f.describe())
		return nil
	}
	return f.children
}

// Items returns the elements of a list. Null counts as an empty list.
func (f *Field) Items() []*Field {
	if f == nil || f.IsNull() {
		return nil
	}
	return f.elements()
}

// filled returns the elements of a list, and reports `problem` if there are none.
func (f *Field) filled(problem string) []*Field {
	elements := f.elements()
	if f.IsList() && len(elements) == 0 {
		f.Report("%s", problem)
	}
	return elements
}

func (f *Field) elements() []*Field {
	if !f.IsList() {
		f.Report("must be a list, not %s", f.describe())
		return nil
	}
	return f.children
}

// Text returns the value if it is a string. Otherwise it reports a problem, and `ok` is false.
func (f *Field) Text() (text string, ok bool) {
	switch {
	case f == nil:
		return "", false
	case !f.IsScalar():
		f.Report("must be a string, not %s", f.describe())
	case f.node.ShortTag() != "!!str":
		f.Report("must be a string, not %s; put the value in quotes", f.describe())
	default:
		return f.node.Value, true
	}
	return "", false
}

// Scalar returns a string unchanged, and any other scalar as Go prints it, e.g. a number in decimal. For null it
// returns "".
func (f *Field) Scalar() string {
	switch {
	case f == nil || f.IsNull():
		return ""
	case !f.IsScalar():
		f.Report("must be a string or a number, not %s", f.describe())
		return ""
	}

	var value any
	if err := f.node.Decode(&value); err != nil || f.node.ShortTag() == "!!str" {
		return f.node.Value
	}
	return fmt.Sprint(value)
}

// Load reads the file that the field names by its absolute path, and returns its top field. It returns nil if it reports a problem.
// Problems of the fields of this file are reported with the name of this file.
func (f *Field) Load() *Field {
	name, ok := f.Text()
	if !ok {
		return nil
	}
	if !path.IsAbs(name) {
		f.Report("is %s; write an absolute path", quote(name))
		return nil
	}

	data, err := f.document.readFile(name)
	if err != nil {
		f.Report("%v", err)
		return nil
	}
	loaded := &document{file: name, read: f.document.read}
	f.document.loaded = append(f.document.loaded, loaded)
	return loaded.load(data)
}

func (f *Field) describe() string {
	value := quote(f.node.Value)
	switch {
	case f.isMapping():
		return "a mapping"
	case f.IsList():
		return "a list"
	case f.IsNull():
		return "an empty value"
	}

	switch f.node.ShortTag() {
	case "!!int", "!!float":
		return "the number " + value
	case "!!bool":
		return "the boolean " + value
	case "!!timestamp":
		return "the date " + value
	}
	return value
}

// FieldError is one problem in a class file:
//
//	gold.yaml:12: resources[0].classes[1].capacity: must not be negative; 0 means unlimited
type FieldError struct {
	File string
	// Line is the number of the line, counted from 1. It is 0 if the line is unknown.
	Line int
	// Field is the path of the field. It is empty if the problem concerns the whole file.
	Field string
	// Problem describes the error and its remedy.
	Problem string
}

func (e *FieldError) Error() string {
	place := e.File
	switch {
	case e.Line > 0 && e.File == "":
		place = fmt.Sprintf("line %d", e.Line)
	case e.Line > 0:
		place = fmt.Sprintf("%s:%d", e.File, e.Line)
	}

	parts := slices.DeleteFunc([]string{place, e.Field, e.Problem}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

// SplitErrors splits an error from errors.Join into its parts, recursively and in order. It does not split an error
// from fmt.Errorf that wraps several errors, because this error has text of its own.
func SplitErrors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || fmt.Sprint(errors.Join(joined.Unwrap()...)) != err.Error() {
		return []error{err}
	}

	var parts []error
	for _, part := range joined.Unwrap() {
		parts = append(parts, SplitErrors(part)...)
	}
	return parts
}
