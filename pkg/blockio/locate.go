// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/intel/goresctrl/pkg/blockio"
	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const classesField = "Classes"

// places are the lines of the fields of a section, by the field's path. goresctrl's types do not tell them.
type places map[string]int

func (p places) line(field string) int { return p[field] }

func (p places) fieldError(field, problem string) error {
	return &classes.FieldError{Field: field, Line: p[field], Problem: problem}
}

// yamlLine is how YAML libraries say where they stumbled.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntaxError is for what the strict unmarshalling says.
func (p places) syntaxError(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ", "while decoding JSON: ", "yaml: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	found := yamlLine.FindStringSubmatch(text)
	if found == nil {
		return p.fieldError(classesField, text)
	}
	line, _ := strconv.Atoi(found[1])
	return &classes.FieldError{Line: line, Problem: strings.Replace(text, found[0], "", 1)}
}

// locate walks the document and finds the lines, and on the way all the fields that do not exist or are there twice; the
// strict unmarshalling would stop at the first and not say where it is.
func locate(section []byte) (places, error) {
	var document yaml.Node
	found := places{}
	if err := yaml.Unmarshal(section, &document); err != nil || len(document.Content) == 0 {
		return found, nil // what this parser does not take, goresctrl's may
	}
	walk := walker{places: found}
	walk.mapping(document.Content[0], "", []string{classesField}, func(_ string, value *yaml.Node) {
		walk.mapping(value, classesField, nil, walk.class)
	})
	return found, errors.Join(walk.problems...)
}

type walker struct {
	places   places
	problems []error
}

func (w *walker) complain(field string, line int, problem string) {
	w.problems = append(w.problems, &classes.FieldError{Field: field, Line: line, Problem: problem})
}

// mapping visits the values of a mapping with their paths. known are the fields that it may have, in any case of letters as
// in JSON decoding; nil: any.
func (w *walker) mapping(node *yaml.Node, path string, known []string, visit func(path string, value *yaml.Node)) {
	node = resolved(node)
	if node.Kind != yaml.MappingNode {
		return // null, or of a wrong type, which the unmarshalling tells better
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		name, isKnown := canonicalField(key.Value, known)
		field := strings.TrimPrefix(path+"."+name, ".")
		switch {
		case !isKnown:
			w.complain(field, key.Line, "no such field; there are "+strings.Join(known, ", "))
		case seen[name]:
			w.complain(field, key.Line, "is there twice; write it once")
		default:
			seen[name] = true
			w.places[field] = key.Line
			visit(field, node.Content[i+1])
		}
	}
}

func (w *walker) class(path string, value *yaml.Node) {
	for i, item := range resolved(value).Content {
		field := fmt.Sprintf("%s[%d]", path, i)
		w.places[field] = item.Line
		w.mapping(item, field, itemFields(), w.items)
	}
}

// items notes the lines of a list, here of devices.
func (w *walker) items(path string, value *yaml.Node) {
	if value = resolved(value); value.Kind != yaml.SequenceNode {
		return
	}
	for i, item := range value.Content {
		w.places[fmt.Sprintf("%s[%d]", path, i)] = item.Line
	}
}

func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func itemFields() []string {
	itemType := reflect.TypeFor[blockio.DevicesParameters]()
	names := make([]string, itemType.NumField())
	for i := range names {
		names[i] = itemType.Field(i).Name
	}
	return names
}

func canonicalField(name string, known []string) (string, bool) {
	for _, field := range known {
		if strings.EqualFold(field, name) {
			return field, true
		}
	}
	return name, known == nil
}
