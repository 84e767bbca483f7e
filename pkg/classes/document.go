// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileSize of class files and of files that they refer to, in bytes. What is read takes some hundred times the memory.
const maxFileSize = 256 << 10

// document is one class file on its way from bytes to resources. It gathers problems and goes on.
type document struct {
	file     string
	problems []problem
}

// problem is a FieldError with the line of the class file that it belongs to: the error may be of another file.
type problem struct {
	line int
	err  *FieldError
}

// fault notes a problem of a field.
func (d *document) fault(line int, at *path, format string, args ...any) {
	d.problems = append(d.problems, problem{line, &FieldError{d.file, line, at.String(), fmt.Sprintf(format, args...)}})
}

// maxProblems that are told of one file; who has more will not read them all at once.
const maxProblems = 100

// errs has the problems in order of lines, and of fields in a line.
func (d *document) errs() []error {
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), strings.Compare(a.err.Field, b.err.Field))
	})
	var errs []error
	for _, p := range d.problems[:min(len(d.problems), maxProblems)] {
		errs = append(errs, p.err)
	}
	if more := len(d.problems) - maxProblems; more > 0 {
		errs = append(errs, &FieldError{File: d.file, Problem: fmt.Sprintf("has %d more problems", more)})
	}
	return errs
}

// load parses the file to its top node, free of aliases. It is nil when there is nothing in it, or nothing legible.
func (d *document) load(data []byte) *yaml.Node {
	if len(data) > maxFileSize {
		d.fault(0, nil, "is larger than 256 KiB; split it, class files are read together")
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		d.illegible(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		d.fault(second.Line, nil, "begins a second YAML document; write one document a file")
	} else {
		d.illegible(err)
	}
	if len(first.Content) == 0 || isNull(first.Content[0]) {
		// It may be about to be written, and to take all classes away would be a harsh reading of it.
		d.fault(0, nil, "is empty; write apiVersion, kind and resources, or remove the file")
		return nil
	}
	return d.expand(first.Content[0])
}

var yamlLine = regexp.MustCompile(`^(?:line (\d+): )?((?s).*)`)

// illegible notes what the YAML parser could not read; the end of the file is not a problem.
func (d *document) illegible(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	parts := yamlLine.FindStringSubmatch(text)
	line, _ := strconv.Atoi(parts[1])
	d.fault(line, nil, "is not YAML: %s", clip(parts[2]))
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// path is the way from the top of a class file to a field. Every field has one, few are printed.
type path struct {
	parent *path
	// name of a field; empty for an element of a list.
	name  string
	index int
}

func (p *path) field(name string) *path { return &path{parent: p, name: name, index: -1} }
func (p *path) element(i int) *path     { return &path{parent: p, index: i} }

func (p *path) String() string {
	var parts []string
	for ; p != nil; p = p.parent {
		switch {
		case p.index >= 0:
			parts = append(parts, "["+strconv.Itoa(p.index)+"]")
		case p.parent == nil:
			parts = append(parts, clip(p.name))
		default:
			parts = append(parts, "."+clip(p.name))
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "")
}
