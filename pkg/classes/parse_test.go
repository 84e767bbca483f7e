// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const head = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n"

func parseText(text string) (*Config, error) {
	return Parse([]File{{"a.yaml", []byte(text)}}, fakeKinds(), nil)
}

// resource returns a class file with one resource, which begins in line 4.
func resource(lines ...string) string { return head + "- " + strings.Join(lines, "\n  ") + "\n" }

func TestParseReadsWholeResources(t *testing.T) {
	text := head + `
- name: rdt
  defaultClass: bronze
  classes:
  - {name: gold, capacity: 2, description: for few}
  - name: bronze
  rdt:
    classes: {gold: {}, bronze: {}, hidden: {}}
- name: vendor.example/net
  scope: pod
  onClassRemoved: evict
  runtimeHandlers: [kata, runc]
  network: {classes: {fast: {}, slow: {}}}
`

	got, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}

	want := &Config{Resources: []ResourceConfig{{
		Resource: Resource{
			Name: "k8s.io/rdt", Scope: ContainerScope, Mutable: true, DefaultClass: "bronze", OnClassRemoved: Drain,
			RuntimeHandlers: KernelSharingHandlers(),
			Classes:         []Class{{Name: "gold", Capacity: 2, Description: "for few"}, {Name: "bronze"}},
		},
		Kind: "rdt", Backend: fakeConfig{"gold", "bronze", "hidden"}, File: "a.yaml", Line: 5,
	}, {
		Resource: Resource{
			Name: "vendor.example/net", Scope: PodScope, OnClassRemoved: Evict, RuntimeHandlers: []string{"kata", "runc"}, Classes: []Class{{Name: "fast"}, {Name: "slow"}},
		},
		Kind: "network", Backend: fakeConfig{"fast", "slow"}, File: "a.yaml", Line: 12,
	}}}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEmptyFilesAreRefused also has a file that ends after "resources:" (head), so that this field has no value.
func TestEmptyFilesAreRefused(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# just a comment\n", "---\n", "---\n# c\n", "null\n", head} {
		if _, err := parseText(text); err == nil {
			t.Errorf("the empty file %q is accepted, want an error", text)
		}
	}
}

func TestFilesMayHaveNoResources(t *testing.T) {
	for _, text := range []string{head + "  []", "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n"} {
		got, err := parseText(text)
		if err != nil || len(got.Resources) != 0 {
			t.Errorf("%q is parsed as %v with the error %v, want no resource", text, got, err)
		}
	}
}

func TestParseReportsEveryProblemWithItsPlace(t *testing.T) {
	for _, test := range badFiles {
		t.Run(test.name, func(t *testing.T) {
			_, err := parseText(test.text)
			var got []string
			for _, problem := range SplitErrors(err) {
				got = append(got, problem.Error())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProblemsAcrossFilesNameBothPlaces(t *testing.T) {
	files := []File{
		{"a.yaml", []byte(resource("name: blockio", "blockio: {}"))},
		{"b.yaml", []byte("bad")},
		{"c.yaml", []byte("# comment\n" + resource("name: k8s.io/blockio", "blockio: {}"))},
	}

	_, err := Parse(files, fakeKinds(), nil)
	want := `b.yaml:1: must be a mapping with the fields apiVersion, kind, resources, not "bad"
c.yaml:5: resources[0].name: k8s.io/blockio is already defined at a.yaml:4; put all of its classes there`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestProblemsOfAConfigFileNameThatFile(t *testing.T) {
	read := func(path string) ([]byte, error) {
		switch path {
		case "/good.yaml":
			return []byte("classes: {gold: {}}"), nil
		case "/bad.yaml":
			return []byte("classes:\n  gold:\n    bad: 1\nother: 1\n"), nil
		case "/explode.yaml":
			return []byte("classes: {explode: }"), nil
		case "/large.yaml":
			return make([]byte, MaxFileSize+1), nil
		}
		return nil, fs.ErrNotExist
	}

	tests := map[string]string{
		"/good.yaml":    "",
		"/bad.yaml":     "/bad.yaml:3: classes.gold.bad: is bad\n/bad.yaml:4: other: unknown field; the known fields are classes",
		"/explode.yaml": "/explode.yaml:1: exploded",
		"/large.yaml":   "a.yaml:5: resources[0].rdt.configFile: /large.yaml is larger than 256 KiB",
		"/none.yaml":    "a.yaml:5: resources[0].rdt.configFile: read /none.yaml: file does not exist",
	}

	for path, want := range tests {
		config, err := Parse([]File{{"a.yaml", []byte(resource("name: rdt", "rdt: {configFile: "+path+"}"))}}, fakeKinds(), read)
		if want == "" {
			if err != nil || config.Resources[0].ConfigFile != path || config.Resources[0].Classes[0].Name != "gold" {
				t.Errorf("with configFile %s, the result is %v with the error %v", path, config, err)
			}
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// TestAliasesAndMergesAreResolved expects the merged fields gold and bronze after the mapping's own field silver.
func TestAliasesAndMergesAreResolved(t *testing.T) {
	text := resource("name: blockio", "blockio:", "  classes: &c {gold: &g {x: 1}, bronze: {<<: *g}}") +
		"- name: vendor.example/x\n  blockio:\n    classes: {<<: *c, silver: *g}\n"
	config, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	want := fakeConfig{"silver", "gold", "bronze"}
	if diff := cmp.Diff(BackendConfig(want), config.Resources[1].Backend); diff != "" {
		t.Error(diff)
	}
}

// TestMergedFieldsDoNotReplaceOwnOnes has two merge keys. The second one has a list of two mappings, of which the first
// one wins.
func TestMergedFieldsDoNotReplaceOwnOnes(t *testing.T) {
	text := resource("<<: {name: blockio, defaultClass: bronze}", "defaultClass: gold", "<<: ", "- {scope: container}", "- {scope: nowhere}", "blockio: {classes: {gold: , bronze: }}")
	config, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	if r := config.Resources[0]; r.Name != BlockIOResource || r.DefaultClass != "gold" || r.Scope != ContainerScope {
		t.Errorf("fields of merge keys have replaced other fields: %+v", r)
	}
}

// TestBackendsGetTextsUnchanged: only a value that YAML reads as a number, such as 0x1f, becomes a decimal number.
func TestBackendsGetTextsUnchanged(t *testing.T) {
	text := resource("name: rdt", "rdt:", "  a: |2", "     indented", "    ", "    text  ", "  b: |+", "", "    kept", "", "", "  c: >-", "    folded", "    text", "",
		"    more", `  d: "\t\x00\u2028 # : "`, "  e: 'it''s'", "  f: !!str 12", "  g: 0x1f", "  h: 10M", "  ? |", "    k", "  : v", "  i: >+", "    x", "", "  j: z")
	want := map[string]any{
		"a": " indented\n\ntext  \n", "b": "\nkept\n\n\n", "c": "folded text\nmore", "d": "\t\x00\u2028 # : ", "e": "it's", "f": "12", "g": "31", "h": "10M", "k\n": "v", "i": "x\n\n", "j": "z",
	}

	kinds := anyKinds()
	got := map[string]any{}
	kinds[0].Parse = func(section *Field, _ Scope) BackendConfig {
		for _, entry := range section.Entries() {
			got[entry.Name] = entry.Scalar()
		}
		return fakeConfig{}
	}

	if _, err := Parse([]File{{"a.yaml", []byte(text)}}, kinds, nil); err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHostileFilesAreRefusedInOneLine(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ",") + "]\n"
	}

	tests := map[string]struct{ text, want string }{
		"an alias bomb":        {bomb, "the file has more than 20000 values (each use of an alias counts); split the file"},
		"an alias to itself":   {"a: &a [*a]\n", "is nested deeper than 50 levels"},
		"deep nesting":         {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "is nested deeper than 50 levels"},
		"too deep for parsing": {strings.Repeat("[", 200000), "is not YAML"},
		"a large file":         {strings.Repeat("#", MaxFileSize+1), "is larger than 256 KiB"},
		"zeros":                {"\x00\x00\x00", "is not YAML"},
		"an ELF file":          {"\x7fELF\x02\x01\x01\x00\xff\xfe", "is not YAML"},
		"a compressed file":    {"\x1f\x8b\x08\x00\x00\x00\x00\x00" + strings.Repeat("\xa7\x03", 2000), "is not YAML"},
		"Latin-1":              {head + "- {name: \xe4\xf6}\n", "is not YAML"},
		"a zero in a text":     {head + "- {name: x\x00y}\n", "is not YAML"},
		"a truncated file":     {head + "- {name: rdt, classes: [", "is not YAML"},
		"tabs":                 {"a:\n\t- b\n", "is not YAML"},
		"an unknown alias":     {"a: *b\n", "is not YAML"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseText(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v", err)
			}
			if text := err.Error(); !strings.HasPrefix(text, "a.yaml:") || strings.ContainsAny(text, "\n\x00\x1b\r") || len(text) > 300 {
				t.Errorf("the error is not one short printable line with the name of the file: %.500q", text)
			}
		})
	}
}

// anyKinds returns kinds that accept every section. The classes of each kind have these names.
func anyKinds(names ...string) []Kind {
	kinds := fakeKinds()
	for i := range kinds {
		kinds[i].Parse = func(*Field, Scope) BackendConfig { return fakeConfig(names) }
	}
	return kinds
}

func TestProblemsOfAFileAreLimited(t *testing.T) {
	var text strings.Builder
	for i := range 250 {
		fmt.Fprintf(&text, "f%d: 1\n", i)
	}
	_, err := parseText("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n" + text.String())
	problems := SplitErrors(err)
	if len(problems) != maxProblems+1 || problems[maxProblems].Error() != "a.yaml: has 150 more problems" {
		t.Errorf("%d problems, the last: %v", len(problems), problems[len(problems)-1])
	}
}

func TestSplitErrorsKeepsErrorsWithTextOfTheirOwn(t *testing.T) {
	one, two, three := errors.New("one"), errors.New("two"), errors.New("three")
	wrapped := fmt.Errorf("both %w and %w", one, two)
	got := SplitErrors(errors.Join(errors.Join(one, two), wrapped, three))
	if want := []error{one, two, wrapped, three}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := SplitErrors(nil); got != nil {
		t.Errorf("got %q of no error", got)
	}
}

func TestFieldErrorsOmitUnknownParts(t *testing.T) {
	tests := map[string]FieldError{
		"a.yaml:3: x.y: is bad": {"a.yaml", 3, "x.y", "is bad"},
		"a.yaml: x.y: is bad":   {"a.yaml", 0, "x.y", "is bad"},
		"a.yaml: is bad":        {"a.yaml", 0, "", "is bad"},
		"line 3: x.y: is bad":   {"", 3, "x.y", "is bad"},
		"x.y: is bad":           {"", 0, "x.y", "is bad"},
		"is bad":                {"", 0, "", "is bad"},
	}
	for want, fault := range tests {
		if got := fault.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
