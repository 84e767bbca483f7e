// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package convert converts manifests with the qosResources fields of KEP-3008 to manifests for stock Kubernetes, with
// extended resources and annotations. It also converts claims with the requests of KEP-3751's first revision, and pods with
// annotations of container runtimes and of nri-plugins. It keeps comments and the order of fields, and normalizes blank lines and indentation.
// It copies documents without these fields byte by byte.
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

// fieldName is the name of the KEP's field in objects of the Kubernetes API.
const fieldName = "qosResources"

// Result is a converted file.
type Result struct {
	// Text is the converted text. It is the original text if there was nothing to convert.
	Text []byte
	// Notes has warnings for the user. Each warning is one sentence, and none occurs twice.
	Notes []string
}

type problem struct {
	line int
	text string
}

func (p problem) Error() string { return p.text }

// Input is a file with manifests in YAML or JSON. Errors use Name as the name of the file.
type Input struct {
	Name string
	Text []byte
}

// Options are the options of a conversion.
type Options struct {
	Known Known
	// Driver is the driver of claims whose StorageClass is not in the input. It may be empty.
	Driver string
	// If ModifyVolume is true, converted claims name their VolumeAttributesClass. Their drivers must have the capability MODIFY_VOLUME,
	// because the external-provisioner otherwise creates no volume for a claim with a class
	// (kubernetes-csi/external-provisioner, pkg/controller/controller.go).
	ModifyVolume bool
	// If Koordinator is true, pods with Koordinator's label for QoS classes get an annotation with the RDT class.
	Koordinator bool
	// If Claims is true, containers request classes by claims of Dynamic Resource Allocation, instead of extended resources.
	Claims bool
}

// Convert converts files, and returns one result for each. A text without the KEPs' fields and without the
// annotations of runtimes and of nri-plugins stays unchanged, even if it is not YAML. Converting the results again changes nothing.
//
// The error joins all problems. Each is one line with file, line, object, field, state and remedy.
func Convert(inputs []Input, options Options) ([]Result, error) {
	r := newRun(inputs, options)
	var results []Result
	var errs []error
	for _, input := range inputs {
		result, err := r.convert(input)
		results, errs = append(results, result), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return results, nil
}

func (r *run) convert(input Input) (Result, error) {
	isKoordinators := r.Koordinator && bytes.Contains(input.Text, []byte("koordinator.sh/"))
	if !bytes.Contains(input.Text, []byte(fieldName)) && !hasClaims(input.Text) && !hasRuntimeKeys(input.Text) && !isKoordinators {
		return Result{Text: input.Text}, nil
	}
	return readFile(input.Name, input.Text, r).convert()
}

type file struct {
	name      string
	run       *run
	documents []*document
	problems  []problem
	notes     []string
}

type place struct {
	line          int
	object, field string
	// `apiObject` is the object of the Kubernetes API. `listItem` is the element of a list that is or contains this
	// object. Both are nil if there is none.
	apiObject, listItem *yaml.Node
}

// at returns the place of the YAML node `n` in the object of `p`. The field of this place is p.field followed by `path`.
func (p place) at(n *yaml.Node, path string) place {
	p.line = n.Line
	p.field = strings.TrimPrefix(p.field+path, ".")
	return p
}

// fault adds a problem, unless the problem was added before. The line of a place is 0 if the line is unknown.
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

// readFile parses the documents of a file. If a document cannot be parsed, readFile reports a problem.
func readFile(name string, text []byte, r *run) *file {
	f := &file{name: name, run: r, documents: splitDocuments(text)}
	for _, d := range f.documents {
		d.file = f
		d.parse()
	}
	return f
}

// convert plans the edits of all documents. If there are no problems, it makes the edits.
func (f *file) convert() (Result, error) {
	for _, d := range f.documents {
		if root := d.content(); root != nil {
			d.walk(root, place{line: root.Line})
			d.walkClaims(root, place{line: root.Line}, "")
			d.walkAnnotations(root, place{line: root.Line})
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
