// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// fakeConfig has the classes of a fake backend.
type fakeConfig []string

func (c fakeConfig) ClassNames() []string { return c }

// fakeKinds are like the real ones from outside: "rdt" is single and for containers, "blockio" for both.
func fakeKinds() []Kind {
	return []Kind{
		{Field: "rdt", Scopes: []Scope{ContainerScope}, Single: true, Mutable: true, Parse: parseFake},
		{Field: "blockio", Scopes: []Scope{ContainerScope, PodScope}, Parse: parseFake},
		{Field: "network", Scopes: []Scope{PodScope}, Parse: parseFake},
	}
}

// parseFake reads {classes: {name: {...}}}. A class with the field "bad" is an error at that field; one named
// "explode" an error without a place.
func parseFake(section []byte) (BackendConfig, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(section, &document); err != nil {
		return nil, err
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, &FieldError{Line: 1, Problem: "must be a mapping"}
	}
	var names fakeConfig
	var errs []error
	top := document.Content[0].Content
	for i := 0; i < len(top); i += 2 {
		if top[i].Value != "classes" {
			errs = append(errs, &FieldError{Line: top[i].Line, Field: top[i].Value, Problem: "unknown field"})
			continue
		}
		for j := 0; j+1 < len(top[i+1].Content); j += 2 {
			name := top[i+1].Content[j].Value
			names = append(names, name)
			errs = append(errs, fakeClass(name, top[i+1].Content[j+1]))
		}
	}
	return names, errors.Join(errs...)
}

func fakeClass(name string, class *yaml.Node) error {
	if name == "explode" {
		return errors.New("exploded")
	}
	for i := 0; i+1 < len(class.Content); i += 2 {
		if key := class.Content[i]; key.Value == "bad" {
			return &FieldError{Line: key.Line, Field: fmt.Sprintf("classes.%s.bad", name), Problem: "is bad"}
		}
	}
	return nil
}
