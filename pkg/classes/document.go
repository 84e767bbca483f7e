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

	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

const (
	// MaxFileSize is the maximum size, in bytes, of class files and of the files that their fields name. Reading a
	// file takes about a hundred times as much memory as the file's size.
	MaxFileSize = 256 << 10
	// maxArgument is the maximum size, in bytes, of each string or error in the arguments of `report`, e.g. a list of names.
	maxArgument = 1 << 10
	// maxProblems is the maximum number of problems that are reported for one file.
	maxProblems = 100
)

// document is one YAML file with the problems found in it.
type document struct {
	file     string
	problems []*FieldError
	// read reads the files that fields name. It is nil if they cannot be read. `loaded` has the files that Field.Load
	// has read.
	read   func(path string) ([]byte, error)
	loaded []*document
}

// readFile reads a file that a field names.
func (d *document) readFile(name string) ([]byte, error) {
	if d.read == nil {
		return nil, fmt.Errorf("cannot read %s here; put the configuration into the class file", clip(name))
	}
	data, err := d.read(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", clip(name), err)
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("%s is larger than 256 KiB", clip(name))
	}
	return data, nil
}

// count returns the number of problems, including those of the loaded files.
func (d *document) count() int {
	n := len(d.problems)
	for _, other := range d.loaded {
		n += other.count()
	}
	return n
}

// report adds a problem. It makes strings and errors in `args` printable, because they can have any text from the file.
func (d *document) report(line int, field, format string, args ...any) {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = printable.Text(arg, maxArgument)
		case error:
			args[i] = printable.Text(arg.Error(), maxArgument)
		}
	}
	d.problems = append(d.problems, &FieldError{d.file, line, field, fmt.Sprintf(format, args...)})
}

func (d *document) errs() []error {
	slices.SortStableFunc(d.problems, func(a, b *FieldError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Field, b.Field))
	})

	var errs []error
	for _, problem := range d.problems[:min(len(d.problems), maxProblems)] {
		errs = append(errs, problem)
	}
	if more := len(d.problems) - maxProblems; more > 0 {
		errs = append(errs, &FieldError{File: d.file, Problem: fmt.Sprintf("has %d more problems", more)})
	}
	for _, other := range d.loaded {
		errs = append(errs, other.errs()...)
	}
	return errs
}

// load parses the file and returns its top field. For a file without content, the field's value is null. If the file is
// not YAML, or exceeds MaxFileSize, maxDepth or maxValues, load returns nil.
func (d *document) load(data []byte) *Field {
	if len(data) > MaxFileSize {
		d.report(0, "", "is larger than 256 KiB; split it into several class files, which are read together")
		return nil
	}

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		d.reportSyntax(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		d.report(second.Line, "", "begins a second YAML document; write one document per file")
	} else if !errors.Is(err, io.EOF) {
		d.reportSyntax(err)
	}

	top := &Field{document: d, line: 1, node: &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}}
	if len(first.Content) == 0 {
		return top
	}
	top.line = first.Content[0].Line
	var b builder
	b.fill(top, first.Content[0], 0)
	if b.stopped {
		return nil
	}
	return top
}

var yamlLine = regexp.MustCompile(`^(?:line (\d+): )?((?s).*)`)

// reportSyntax reports an error of the YAML parser. The text of such an error has the line number.
func (d *document) reportSyntax(err error) {
	parts := yamlLine.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
	line, _ := strconv.Atoi(parts[1])
	d.report(line, "", "is not YAML: %s", clip(parts[2]))
}

const (
	// maxDepth limits the nesting of values to far more than any configuration needs. The limit also stops the
	// expansion of aliases that contain themselves.
	maxDepth = 50
	// maxValues is the maximum number of keys and values in a file, including the keys and values behind aliases. It is
	// enough for some thousand classes.
	maxValues = 20_000
)

// builder builds Fields from YAML nodes. It follows aliases and adds the fields of merge keys. It reports duplicate
// keys, and uses the first of several equal keys.
type builder struct {
	values int
	// stopped is true if the file exceeds maxDepth or maxValues. The builder then ignores the rest of the file.
	stopped bool
}

func (b *builder) fill(f *Field, n *yaml.Node, depth int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	f.node = n

	b.values++
	switch {
	case b.stopped:
		return
	case depth > maxDepth:
		b.stopped = true
		f.Report("is nested deeper than %d levels", maxDepth)
	case b.values > maxValues:
		b.stopped = true
		f.Report("the file has more than %d values (each use of an alias counts); split the file", maxValues)
	case n.Kind == yaml.MappingNode:
		b.fillMapping(f, depth+1)
	case n.Kind == yaml.SequenceNode:
		for i, element := range n.Content {
			child := &Field{document: f.document, parent: f, index: i, line: element.Line}
			f.children = append(f.children, child)
			b.fill(child, element, depth+1)
		}
	}
}

func (b *builder) fillMapping(f *Field, depth int) {
	seen := map[string]*Field{}
	var merged []*Field
	for i := 0; i+1 < len(f.node.Content); i += 2 {
		key, value := f.node.Content[i], f.node.Content[i+1]
		child := &Field{document: f.document, parent: f, line: key.Line}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		b.values++
		child.Name = key.Value

		switch {
		case key.Kind != yaml.ScalarNode:
			f.document.report(child.line, f.Path(), "has a key that is a mapping or a list")
		case key.ShortTag() == "!!merge":
			b.fill(child, value, depth)
			merged = append(merged, child)
		case seen[key.Value] != nil:
			child.reportDuplicate(seen[key.Value])
		default:
			seen[key.Value] = child
			f.children = append(f.children, child)
			b.fill(child, value, depth)
		}
	}

	for _, source := range merged {
		b.merge(f, source, seen)
	}
}

// merge handles the YAML merge key "<<" in the mapping `f`. It adds to `f` the missing fields from a mapping, or from a
// list of mappings. If several mappings in the list have a field, the first one wins.
func (b *builder) merge(f, from *Field, seen map[string]*Field) {
	sources := []*Field{from}
	if from.IsList() {
		sources = from.children
	}

	for _, source := range sources {
		if !source.isMapping() {
			source.Report("must be a mapping, or a list of mappings")
			continue
		}
		for _, child := range source.children {
			if seen[child.Name] == nil {
				seen[child.Name] = child
				child.parent = f
				f.children = append(f.children, child)
			}
		}
	}
}
