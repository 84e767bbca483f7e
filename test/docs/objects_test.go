// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// schema is the part of a schema in a CRD that describes a field for its readers.
type schema struct {
	Description, Type string
	Properties        map[string]schema
	Items             *schema
	Required          []string
	Enum              []string
	Minimum           *int64
	MaxItems          *int64
}

// TestTheObjectsPageHasAllFields compares docs/objects.md with the CRDs.
func TestTheObjectsPageHasAllFields(t *testing.T) {
	var want strings.Builder
	for _, crd := range []string{"deploy/kubernetes/crd.yaml", "deploy/policies/crd.yaml", "deploy/storage-statefulsets/crd.yaml"} {
		describe(t, &want, read(t, crd))
	}
	checkGenerated(t, "docs/objects.md", want.String())
}

// describe writes a section with the fields of a kind.
func describe(t *testing.T, out *strings.Builder, text string) {
	t.Helper()
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema schema }
			}
		}
	}

	if err := yaml.Unmarshal([]byte(text), &crd); err != nil || len(crd.Spec.Versions) != 1 {
		t.Fatalf("%v, %d versions", err, len(crd.Spec.Versions))
	}

	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	fmt.Fprintf(out, "\n## %s\n\nThe version is `%s/%s`.\n", crd.Spec.Names.Kind, crd.Spec.Group, crd.Spec.Versions[0].Name)
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		if name == "spec" || name == "status" {
			fmt.Fprintf(out, "\n### %s of %s\n\n| Field | Type | Meaning |\n|---|---|---|\n", name, crd.Spec.Names.Kind)
			rows(out, "", root.Properties[name])
		}
	}
}

// rows writes a row for each field below a schema.
func rows(out *strings.Builder, prefix string, parent schema) {
	for _, name := range slices.Sorted(maps.Keys(parent.Properties)) {
		field := parent.Properties[name]
		path, kind, below := prefix+name, field.Type, field
		if field.Items != nil {
			path, kind, below = path+"[]", "list of "+field.Items.Type, *field.Items
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", path, kind, meaning(field, below, slices.Contains(parent.Required, name)))
		rows(out, path+".", below)
	}
}

// meaning returns the description of a field with its rules. If the field is a list, the parameter `below` is the schema of
// its items; otherwise, it is the schema of the field itself.
func meaning(field, below schema, required bool) string {
	text := field.Description
	if text == "" {
		text = below.Description
	}

	var rules []string
	if required {
		rules = append(rules, "required")
	}

	if len(below.Enum) > 0 {
		rules = append(rules, "one of `"+strings.Join(below.Enum, "`, `")+"`")
	}

	if field.Minimum != nil {
		rules = append(rules, fmt.Sprintf("at least %d", *field.Minimum))
	}

	if field.MaxItems != nil {
		rules = append(rules, fmt.Sprintf("at most %d items", *field.MaxItems))
	}

	if len(rules) > 0 {
		text += " (" + strings.Join(rules, "; ") + ")"
	}

	return cell(text)
}
