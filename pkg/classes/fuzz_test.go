// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

func FuzzParse(f *testing.F) {
	for _, test := range badFiles {
		f.Add([]byte(test.text))
	}

	examples, err := filepath.Glob("../../config/*.yaml")
	if err != nil {
		f.Fatal(err)
	}

	for _, name := range examples {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}

	f.Add([]byte(resource("name: &n rdt", "rdt: &r {classes: {<<: [{a: !x 1}, {b: !!binary aGk=}], c: *n}}")))
	f.Add([]byte(resource("name: rdt", "rdt:", "  classes:", "    ? gold", "    : |+", "      x", "", "    \"b\\n\": >-", "      y")))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Parse([]File{{"f.yaml", data}}, fakeKinds(), func(string) ([]byte, error) { return data, nil })
		if err != nil {
			checkFieldErrors(t, err)
			return
		}
		checkConfig(t, config)
	})
}

func checkFieldErrors(t *testing.T, err error) {
	for _, problem := range SplitErrors(err) {
		var field *FieldError
		if !errors.As(problem, &field) || field.File == "" || field.Problem == "" || field.Line < 0 {
			t.Errorf("the error is not a FieldError with a place: %#v", problem)
		}
		if text := problem.Error(); len(text) > 8<<10 || printable.Text(text, len(text)) != text {
			t.Errorf("the error is not a short printable line: %d bytes, %.500q", len(text), text)
		}
	}
}

// checkConfig checks that the resources of a Config have unique valid names and usable default classes, and that the
// classes have unique extended resources and can be names of directories.
func checkConfig(t *testing.T, config *Config) {
	names, extended := map[string]bool{}, map[string]bool{}
	for _, r := range config.Resources {
		if names[r.Name] || ValidateResourceName(r.Name) != nil || r.Backend == nil || r.Line < 1 {
			t.Errorf("the resource has an invalid or duplicate name, no backend, or no line: %+v", r)
		}
		names[r.Name] = true
		if class, ok := r.Class(r.DefaultClass); r.DefaultClass != "" && (!ok || class.Capacity > 0) {
			t.Errorf("the default class %q does not exist or has a capacity: %+v", r.DefaultClass, r)
		}
		for _, class := range r.Classes {
			name, err := ExtendedResource(r.Name, class.Name)
			if err != nil || extended[name] || filepath.Base(class.Name) != class.Name || class.Name == ".." {
				t.Errorf("class %q of %s has an invalid or duplicate name; extended resource %q, error %v", class.Name, r.Name, name, err)
			}
			extended[name] = true
		}
	}
}

func FuzzParsePairs(f *testing.F) {
	for _, value := range []string{"", "rdt=gold", " rdt=gold , k8s.io/rdt=", "a=b,a=c", ",", "=", "a==", "a = b", "\x00=\xff,"} {
		f.Add(value)
	}

	f.Fuzz(func(t *testing.T, value string) {
		pairs, err := ParsePairs(value)
		if err != nil {
			checkUserError(t, err)
			return
		}
		var parts []string
		for _, pair := range pairs {
			parts = append(parts, pair.Resource+"="+pair.Class)
		}
		again, err := ParsePairs(strings.Join(parts, ","))
		if err != nil || len(again) != len(pairs) {
			t.Errorf("the pairs %v, written and parsed again, are %v with the error %v", pairs, again, err)
		}
	})
}

// checkUserError checks that an error is one short line, and wraps one of the reasons for a refusal.
func checkUserError(t *testing.T, err error) {
	if text := err.Error(); len(text) > 700 || strings.ContainsAny(text, "\n\r\x00\x1b") {
		t.Errorf("the error is not one short line: %q", text)
	}
	for _, reason := range []error{ErrUnknownResource, ErrUnknownClass, ErrUnavailable, ErrContradiction, ErrBadRequest} {
		if errors.Is(err, reason) {
			return
		}
	}
	t.Errorf("the error has no known reason: %v", err)
}

func FuzzResolve(f *testing.F) {
	f.Add("main", ownKey, "rdt=gold,blockio=", allocatedKey, "rdt=gold")
	f.Add("main", podKey, podResource+"=gold", criKey, "bronze")
	f.Add("main", kepKey, "gold", allocatedKey+"-2", "rdt=bronze")
	f.Add("", podKey, podResource+"=", betaPodKey, "x")
	f.Add("main", betaKey, "gold", kepPodKey, "v.example/gone=gold")
	f.Fuzz(func(t *testing.T, container, key1, value1, key2, value2 string) {
		annotations := notes{key1: value1, key2: value2}
		c := testCatalog()
		got, err := c.Resolve(Holder{
			PodNamespace: "default", PodName: "web", Container: container,
			PodAnnotations: annotations, ContainerAnnotations: annotations,
		})
		if err != nil {
			checkUserError(t, err)
			return
		}

		scope := ContainerScope
		if container == "" {
			scope = PodScope
		}

		checkAssignments(t, c, scope, got)
	})
}

// checkAssignments checks that there is one assignment for each resource of the scope, in the order of the catalog.
// Each must have a class that can be assigned. An assignment has the key of a request only if it was requested.
func checkAssignments(t *testing.T, c *Catalog, scope Scope, got []Assignment) {
	for _, offer := range c.Offers() {
		if offer.Scope != scope {
			continue
		}
		if len(got) == 0 || got[0].Resource != offer.Name {
			t.Fatalf("no assignment of %s in its place: %+v", offer.Name, got)
		}
		a := got[0]
		if err := c.check(&offer, a); err != nil {
			t.Errorf("%+v cannot be assigned: %v", a, err)
		}
		if asked := a.Source != SourceDefault && a.Source != SourceNone; asked != (a.Key != "") {
			t.Errorf("the assignment must have a key exactly if it was requested: %+v", a)
		}
		got = got[1:]
	}

	if len(got) > 0 {
		t.Errorf("there are assignments for resources of another scope: %+v", got)
	}
}
