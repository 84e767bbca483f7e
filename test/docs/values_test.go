// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
)

// TestTheValuesPageHasAllValues compares docs/values.md with the chart. The values come from its schema, and their
// defaults and descriptions from values.yaml.
func TestTheValuesPageHasAllValues(t *testing.T) {
	page := regexp.MustCompile(`docs/([\w-]+)\.md`)
	var want strings.Builder
	want.WriteString("## All values\n\n| Value | Default | Meaning |\n|---|---|---|\n")
	for _, v := range valuesOf(t) {
		if v.parent && v.meaning == "" {
			continue
		}
		if v.standard != "" {
			v.standard = "`" + v.standard + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", v.path, v.standard, page.ReplaceAllString(cell(v.meaning), "[$1]($1.md)"))
	}
	checkGenerated(t, "docs/values.md", want.String())
}

// TestValuesInThePagesExist looks up the values that the table of values and the commands of docs/kubernetes.md name.
func TestValuesInThePagesExist(t *testing.T) {
	known := map[string]bool{}
	for _, v := range valuesOf(t) {
		known[v.path] = true
	}

	page := read(t, "docs/kubernetes.md")
	_, table, _ := strings.Cut(page, "\n## Values of the chart\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var named []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w.]+)").FindAllStringSubmatch(table, -1) {
		named = append(named, row[1])
	}

	for _, flag := range regexp.MustCompile(`--set(?:-\w+)? '?([\w.]+)`).FindAllStringSubmatch(page, -1) {
		named = append(named, strings.TrimSuffix(flag[1], ".classes")) // the name of a class file
	}

	if len(named) < 15 {
		t.Errorf("the page names only the values %q", named)
	}

	for _, name := range named {
		if !known[name] {
			t.Errorf("docs/kubernetes.md names %q, which is not a value of the chart", name)
		}
	}
}

// value is a value of the chart.
type value struct {
	path, standard, meaning string
	// parent is true if other values are below this value. A parent has no default of its own.
	parent bool
}

// valuesSchema is the part of values.schema.json with the names of the chart's values.
type valuesSchema struct {
	Ref         string `json:"$ref"`
	Properties  map[string]valuesSchema
	Definitions map[string]valuesSchema
}

// valuesOf returns the values of the chart, in the order of values.yaml.
func valuesOf(t *testing.T) []value {
	t.Helper()
	var root valuesSchema
	must(t, json.Unmarshal([]byte(read(t, "deploy/chart/values.schema.json")), &root))
	var file goyaml.Node
	must(t, goyaml.Unmarshal([]byte(read(t, "deploy/chart/values.yaml")), &file))

	return valuesBelow(t, "", file.Content[0], root, root.Definitions)
}

// valuesBelow returns the values in a mapping of values.yaml, and those that only the schema has.
func valuesBelow(t *testing.T, prefix string, mapping *goyaml.Node, of valuesSchema, definitions map[string]valuesSchema) (all []value) {
	t.Helper()
	rest := maps.Clone(of.Properties)
	for i := 0; i < len(mapping.Content); i += 2 {
		key, content := mapping.Content[i], mapping.Content[i+1]
		below, found := rest[key.Value]
		if !found {
			t.Errorf("values.schema.json does not have %s%s", prefix, key.Value)
		}
		delete(rest, key.Value)
		if name, is := strings.CutPrefix(below.Ref, "#/definitions/"); is {
			below = definitions[name]
		}

		v := value{path: prefix + key.Value, meaning: description(key.HeadComment), parent: len(below.Properties) > 0}
		if !v.parent {
			v.standard = inline(t, content)
		}
		all = append(all, v)
		if v.parent {
			all = append(all, valuesBelow(t, v.path+".", content, below, definitions)...)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(rest)) {
		all = append(all, value{path: prefix + name})
	}

	return all
}

// description returns the text of a comment, without the example at its end.
func description(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	text, _, _ := strings.Cut("\n"+paragraphs[len(paragraphs)-1], "\n# - ")
	return strings.TrimSpace(strings.ReplaceAll(text, "\n#", "\n"))
}

// inline returns a value in one line. It is empty for null and empty text.
func inline(t *testing.T, content *goyaml.Node) string {
	t.Helper()
	var v any
	must(t, content.Decode(&v))

	if v == nil || v == "" {
		return ""
	}

	if text, is := v.(string); is {
		return text
	}

	data, err := json.Marshal(v)
	must(t, err)

	return string(data)
}
