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

const (
	// MaxFileSize bounds class files and files that configFile fields name, in bytes. Reading takes some hundred times the memory.
	MaxFileSize = 256 << 10
	// maxProblems bounds the problems that are reported of one file.
	maxProblems = 100
)

// document is one YAML file with the problems found in it.
type document struct {
	file     string
	problems []*FieldError
}

func (d *document) report(line int, field, format string, args ...any) {
	d.problems = append(d.problems, &FieldError{d.file, line, field, fmt.Sprintf(format, args...)})
}

// errs returns the problems, sorted by line and field.
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
	return errs
}

// load parses the file to its top field, which is null for a file without content. It returns nil when the file is too large
// or not YAML.
func (d *document) load(data []byte) *Field {
	if len(data) > MaxFileSize {
		d.report(0, "", "is larger than 256 KiB; split it, class files are read together")
		return nil
	}

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	if err := decoder.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		d.reportSyntax(err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		d.report(second.Line, "", "begins a second YAML document; write one document a file")
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

// reportSyntax reports an error of the YAML parser, which has the line in its text.
func (d *document) reportSyntax(err error) {
	parts := yamlLine.FindStringSubmatch(strings.TrimPrefix(err.Error(), "yaml: "))
	line, _ := strconv.Atoi(parts[1])
	d.report(line, "", "is not YAML: %s", clip(parts[2]))
}
