// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const head = "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n"

func parseText(text string) (*Config, error) {
	return Parse([]File{{"a.yaml", []byte(text)}}, fakeKinds(), nil)
}

// resource is one on lines 4 and on.
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
  network: {classes: {fast: {}, slow: {}}}
`
	got, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{Resources: []ResourceConfig{{
		Resource: Resource{
			Name: "k8s.io/rdt", Scope: ContainerScope, Mutable: true, DefaultClass: "bronze",
			Classes: []Class{{Name: "gold", Capacity: 2, Description: "for few"}, {Name: "bronze"}},
		},
		Kind: "rdt", Backend: fakeConfig{"gold", "bronze", "hidden"}, File: "a.yaml", Line: 5,
	}, {
		Resource: Resource{Name: "vendor.example/net", Scope: PodScope, Classes: []Class{{Name: "fast"}, {Name: "slow"}}},
		Kind:     "network", Backend: fakeConfig{"fast", "slow"}, File: "a.yaml", Line: 12,
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFilesWithoutContentHaveNoResources(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# just a comment\n", "---\n", "---\n# c\n", "null\n", head, head + "  []", "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n"} {
		got, err := parseText(text)
		if text == head {
			// A field without a value is more likely a mistake than an intention.
			if err == nil {
				t.Errorf("%q: no error", text)
			}
			continue
		}
		if err != nil || len(got.Resources) != 0 {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

const gold = "rdt: {classes: {gold: {}, bronze: {}}}"

var badFiles = []struct {
	name, text string
	// want has every error, in order.
	want []string
}{
	{"another apiVersion, of which nothing more is said", "apiVersion: v1\nkind: QOSClassConfig\nwhatever: 1\nresources: [1]\n", []string{
		`a.yaml:1: apiVersion: is "v1"; only qos.noderesource.dev/v1alpha1 is known`,
	}},
	{"another kind", "apiVersion: qos.noderesource.dev/v1alpha1\nkind: Pod\n", []string{`a.yaml:2: kind: is "Pod"; only QOSClassConfig is known`}},
	{"no apiVersion and no kind", "resources: []\n", []string{
		"a.yaml:1: apiVersion: is missing; write apiVersion: qos.noderesource.dev/v1alpha1",
		"a.yaml:1: kind: is missing; write kind: QOSClassConfig",
	}},
	{"a list at the top", "- a\n", []string{"a.yaml:1: must be a mapping with fields out of apiVersion, kind, resources, not a list"}},
	{"a text", "hello\n", []string{`a.yaml:1: must be a mapping with fields out of apiVersion, kind, resources, not "hello"`}},
	{"two documents", resource("name: rdt", gold) + "---\na: b\n", []string{"a.yaml:6: begins a second YAML document; write one document a file"}},
	{"resources that are no list", head + "  a: b\n", []string{"a.yaml:3: resources: must be a list, not a mapping"}},
	{"a resource that is a word", head + "- rdt\n", []string{
		`a.yaml:4: resources[0]: must be a mapping with fields out of name, scope, defaultClass, classes, rdt, blockio, network, not "rdt"`,
	}},
	{"unknown fields of everything", "spec: 1\n" + resource("name: rdt", "defaultclass: gold", "classes: [{name: gold, cap: 2}]", gold), []string{
		"a.yaml:1: spec: unknown field; known are apiVersion, kind, resources",
		"a.yaml:6: resources[0].defaultclass: unknown field; known are name, scope, defaultClass, classes, rdt, blockio, network",
		"a.yaml:7: resources[0].classes[0].cap: unknown field; known are name, capacity, description",
	}},
	{"keys that are there twice", resource("name: rdt", "name: blockio", "rdt:", "  classes: {gold: {}, gold: {}}"), []string{
		"a.yaml:5: resources[0].name: is there twice; the first is in line 4",
		"a.yaml:7: resources[0].rdt.classes.gold: is there twice; the first is in line 7",
	}},
	{"a key that is a list", resource("name: rdt", "[a]: b", gold), []string{"a.yaml:5: resources[0]: has a key that is not a plain word"}},
	{"wrong types", resource("name: 12", "scope: [pod]", "defaultClass: true", "classes: gold", "rdt: 3"), []string{
		`a.yaml:4: resources[0].name: must be a string, not the number "12"; put it in quotes`,
		"a.yaml:5: resources[0].scope: must be a string, not a list",
		`a.yaml:6: resources[0].defaultClass: must be a string, not the truth value "true"; put it in quotes`,
		`a.yaml:7: resources[0].classes: must be a list, not "gold"`,
		`a.yaml:8: resources[0].rdt: must be a mapping, the configuration of rdt, not the number "3"`,
	}},
	{"values that were forgotten", resource("name:", "classes: [{name: , capacity: }, {}]", "rdt:"), []string{
		"a.yaml:4: resources[0].name: must be a string, not empty",
		"a.yaml:5: resources[0].classes[0].capacity: must be a whole number like 4, not empty; leave it out for unlimited",
		"a.yaml:5: resources[0].classes[0].name: must be a string, not empty",
		"a.yaml:5: resources[0].classes[1].name: is missing; a class needs one",
		"a.yaml:6: resources[0].rdt: must be a mapping, the configuration of rdt, not empty",
	}},
	{"no name", resource("scope: container", gold), []string{
		"a.yaml:4: resources[0].name: is missing; write name: and a name like k8s.io/rdt or vendor.example/my-qos",
	}},
	{"a scope that is none", resource("name: rdt", "scope: node", gold), []string{`a.yaml:5: resources[0].scope: is "node"; write container or pod`}},
	{"a scope that the kind has not", resource("name: vendor.example/x", "scope: pod", gold), []string{
		"a.yaml:6: resources[0].rdt: cannot be in scope pod; rdt can be in scope container",
	}},
	{"a kind for pods left in the scope of containers", resource("name: vendor.example/x", "network: {}"), []string{
		"a.yaml:5: resources[0].network: cannot be in scope container; network can be in scope pod",
	}},
	{"an official resource in the other scope", resource("name: blockio", "scope: pod", "blockio: {}"), []string{
		"a.yaml:5: resources[0].scope: k8s.io/blockio is in container scope by its definition; leave the scope out, or give a resource of pods a name of its own, like qos.noderesource.dev/pod-blockio",
	}},
	{"the other official resource in the other scope", resource("name: rdt", "scope: pod", "rdt: {}"), []string{
		"a.yaml:5: resources[0].scope: k8s.io/rdt is in container scope by its definition; leave the scope out, or give a resource of pods a name of its own, like qos.noderesource.dev/pod-rdt",
		"a.yaml:6: resources[0].rdt: cannot be in scope pod; rdt can be in scope container",
	}},
	{"an official resource with another's backend", resource("name: blockio", gold), []string{
		"a.yaml:5: resources[0].rdt: is not what k8s.io/blockio means; use the field blockio, or another name",
	}},
	{"no backend", resource("name: rdt"), []string{"a.yaml:4: resources[0]: has no backend; add one of the fields rdt, blockio, network"}},
	{"two backends", resource("name: rdt", gold, "blockio: {}"), []string{
		"a.yaml:6: resources[0].blockio: is one backend too many: the resource has rdt and blockio; make it two resources",
	}},
	{"names without a domain, which are Kubernetes' own", resource("name: network", "scope: pod", "network: {}"), []string{
		`a.yaml:4: resources[0].name: "network" cannot be the name of a resource: names without a domain are reserved for Kubernetes; put one before it, as in vendor.example/network`,
	}},
	{"an official name that nobody has defined", resource("name: k8s.io/foo", gold), []string{
		`a.yaml:4: resources[0].name: "k8s.io/foo" cannot be the name of a resource: the domain k8s.io is reserved for official resources, which are k8s.io/rdt and k8s.io/blockio; use a domain of your own`,
	}},
	{"capacities that are none", resource("name: rdt", "classes:", "- {name: gold, capacity: -1}", "- {name: bronze, capacity: 1.5}", "rdt: {classes: {gold: {}, bronze: {}}}"), []string{
		"a.yaml:6: resources[0].classes[0].capacity: must not be negative; write 0 or leave it out for unlimited",
		`a.yaml:7: resources[0].classes[1].capacity: must be a whole number like 4, not the number "1.5"; leave it out for unlimited`,
	}},
	{"capacities in other notations", resource("name: rdt", "classes:", `- {name: a, capacity: "2"}`, "- {name: b, capacity: 0x10}", "- {name: c, capacity: 010}", "- {name: d, capacity: 1_000}", "- {name: e, capacity: [1]}", "rdt: {classes: {a: , b: , c: , d: , e: }}"), []string{
		`a.yaml:6: resources[0].classes[0].capacity: must be a whole number like 4, not "2"; leave it out for unlimited`,
		`a.yaml:7: resources[0].classes[1].capacity: must be a whole number like 4, not the number "0x10"; leave it out for unlimited`,
		`a.yaml:8: resources[0].classes[2].capacity: must be a whole number like 4, not the number "010"; leave it out for unlimited`,
		`a.yaml:9: resources[0].classes[3].capacity: must be a whole number like 4, not the number "1_000"; leave it out for unlimited`,
		`a.yaml:10: resources[0].classes[4].capacity: must be a whole number like 4, not a list; leave it out for unlimited`,
	}},
	{"capacities that are too large", resource("name: rdt", "classes: [{name: gold, capacity: 100001}, {name: bronze, capacity: 99999999999999999999999}]", gold), []string{
		"a.yaml:5: resources[0].classes[0].capacity: must not be more than 100000; write 0 or leave it out for unlimited",
		"a.yaml:5: resources[0].classes[1].capacity: must not be more than 100000; write 0 or leave it out for unlimited",
	}},
	{"a list of no classes", resource("name: rdt", "classes: []", gold), []string{
		"a.yaml:5: resources[0].classes: has no class; leave it out to offer every class of the backend",
	}},
	{"a class listed twice", resource("name: rdt", "classes:", "- name: gold", "- name: gold", gold), []string{
		`a.yaml:7: resources[0].classes[1].name: class "gold" is listed already, in line 6`,
	}},
	{"a class that is not configured", resource("name: rdt", "classes: [{name: gold}, {name: platin}]", gold), []string{
		`a.yaml:5: resources[0].classes[1].name: class "platin" is not configured under rdt; configured are gold, bronze`,
	}},
	{"classes that could leave their directory", resource("name: rdt", "classes: [{name: ../../etc}, {name: ..}, {name: a/b}, {name: gold}]", gold), []string{
		`a.yaml:5: resources[0].classes[0].name: "../../etc" cannot be the name of a class: must not contain "/"`,
		`a.yaml:5: resources[0].classes[1].name: ".." cannot be the name of a class: must have only letters, digits, "-", "_" and ".", and begin and end with a letter or digit`,
		`a.yaml:5: resources[0].classes[2].name: "a/b" cannot be the name of a class: must not contain "/"`,
	}},
	{"a class of the backend that cannot be offered", resource("name: rdt", "rdt: {classes: {gold: {}, a/b: {}}}"), []string{
		`a.yaml:5: resources[0].rdt: "a/b" cannot be the name of a class: must not contain "/"`,
	}},
	{"a default that does not exist", resource("name: rdt", "defaultClass: silver", gold), []string{
		`a.yaml:5: resources[0].defaultClass: there is no class "silver"; available are gold, bronze`,
	}},
	{"a default that is not offered", resource("name: rdt", "defaultClass: bronze", "classes: [{name: gold}]", gold), []string{
		`a.yaml:5: resources[0].defaultClass: there is no class "bronze"; available are gold`,
	}},
	{"a default that is bounded", resource("name: rdt", "defaultClass: gold", "classes: [{name: gold, capacity: 1}]", gold), []string{
		`a.yaml:5: resources[0].defaultClass: class "gold" has capacity 1, but a default must be unlimited: what asks for nothing is never refused`,
	}},
	{"a resource defined twice, of which its classes are no problem more", resource("name: blockio", "blockio: {classes: {gold: }}") + "- name: k8s.io/blockio\n  blockio: {classes: {gold: }}\n", []string{
		"a.yaml:6: resources[1].name: k8s.io/blockio is defined already, at a.yaml:4; put all of its classes there",
	}},
	{"a resource in both scopes", resource("name: vendor.example/x", "blockio: {}") + "- name: vendor.example/x\n  scope: pod\n  blockio: {}\n", []string{
		"a.yaml:6: resources[1].name: vendor.example/x is defined already, at a.yaml:4, in scope container; a name is used in one scope only",
	}},
	{"a single kind twice", resource("name: rdt", gold) + "- name: vendor.example/rdt\n  rdt: {}\n", []string{
		"a.yaml:7: resources[1].rdt: can back one resource of a node, and k8s.io/rdt, at a.yaml:4, has it",
	}},
	{"a class too long for an extended resource", resource("name: rdt", "rdt: {classes: {"+strings.Repeat("a", 60)+": {}}}"), []string{
		`a.yaml:5: resources[0].rdt: class "` + strings.Repeat("a", 60) + `" cannot be offered to Kubernetes: extended resource qos.noderesource.dev/rdt.` + strings.Repeat("a", 39) + `...: must not be longer than 63 characters after "/"`,
	}},
	{"the extended resource of a class under another name", resource("name: rdt", "rdt: {classes: {gold: }}") + "- name: qos.noderesource.dev/rdt\n  blockio: {classes: {gold: }}\n", []string{
		`a.yaml:7: resources[1].blockio: class "gold" would be the extended resource qos.noderesource.dev/rdt.gold, which a class of k8s.io/rdt, at a.yaml:4, is already; rename one of them`,
	}},
	{"the same extended resource by dots", resource("name: v.example/a.b", "blockio: {classes: {c: }}") + "- name: v.example/a\n  blockio: {classes: {b.c: }}\n", []string{
		`a.yaml:7: resources[1].blockio: class "b.c" would be the extended resource v.example/a.b.c, which a class of v.example/a.b, at a.yaml:4, is already; rename one of them`,
	}},
	{"configFile beside other fields", resource("name: rdt", "rdt: {configFile: /x, classes: {}}"), []string{
		"a.yaml:5: resources[0].rdt.configFile: stands beside other fields; the file has to hold all of the configuration",
	}},
	{"configFile that is relative", resource("name: rdt", "rdt: {configFile: x.yaml}"), []string{
		`a.yaml:5: resources[0].rdt.configFile: is "x.yaml"; write an absolute path`,
	}},
	{"configFile where nothing can be read", resource("name: rdt", "rdt: {configFile: /x.yaml}"), []string{
		"a.yaml:5: resources[0].rdt.configFile: cannot read /x.yaml here; put the configuration into the class file",
	}},
}

func TestParseTellsEveryProblemWithItsPlace(t *testing.T) {
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

func TestProblemsOfASectionHaveTheLineOfTheClassFile(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"in block style, with comments and gaps", resource("name: rdt", "rdt:", "  # a comment", "", "  classes:", "    gold: {}", "", "    bronze:", "      ok: 1", "      bad: 1", "  more: |", "    a", "    b", "  other: 1"), []string{
			"a.yaml:13: resources[0].rdt.classes.bronze.bad: is bad", "a.yaml:14: resources[0].rdt.more: unknown field", "a.yaml:17: resources[0].rdt.other: unknown field",
		}},
		{"in flow style over several lines", resource("name: rdt", "rdt: {", "  classes: {", "   gold: {", "   bad: 1}}, other: {},", "  more: 1}"), []string{
			"a.yaml:8: resources[0].rdt.classes.gold.bad: is bad", "a.yaml:8: resources[0].rdt.other: unknown field", "a.yaml:9: resources[0].rdt.more: unknown field",
		}},
		{"behind an alias", resource("name: &n rdt", "rdt: {classes: {gold: &x {", "  bad: 1}, bronze: *x}}"), []string{
			"a.yaml:6: resources[0].rdt.classes.bronze.bad: is bad", "a.yaml:6: resources[0].rdt.classes.gold.bad: is bad",
		}},
		{"without a place", resource("name: rdt", "rdt:", "  classes: {explode: {}}"), []string{"a.yaml:5: resources[0].rdt: exploded"}},
	}
	for _, test := range tests {
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

func TestProblemsOverFilesNameBothPlaces(t *testing.T) {
	files := []File{
		{"a.yaml", []byte(resource("name: blockio", "blockio: {}"))},
		{"b.yaml", []byte("bad")},
		{"c.yaml", []byte("# comment\n" + resource("name: k8s.io/blockio", "blockio: {}"))},
	}
	_, err := Parse(files, fakeKinds(), nil)
	want := `b.yaml:1: must be a mapping with fields out of apiVersion, kind, resources, not "bad"
c.yaml:5: resources[0].name: k8s.io/blockio is defined already, at a.yaml:4; put all of its classes there`
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	var field *FieldError
	if !errors.As(err, &field) {
		t.Error("problems are not FieldErrors")
	}
}

func TestConfigFileIsReadAndBlamed(t *testing.T) {
	read := func(path string) ([]byte, error) {
		switch path {
		case "/good.yaml":
			return []byte("classes: {gold: {}}"), nil
		case "/bad.yaml":
			return []byte("classes:\n  gold:\n    bad: 1\nother: 1\n"), nil
		case "/explode.yaml":
			return []byte("classes: {explode: }"), nil
		case "/large.yaml":
			return make([]byte, maxFileSize+1), nil
		}
		return nil, fs.ErrNotExist
	}
	tests := map[string]string{
		"/good.yaml":    "",
		"/bad.yaml":     "/bad.yaml:3: classes.gold.bad: is bad\n/bad.yaml:4: other: unknown field",
		"/explode.yaml": "/explode.yaml: exploded",
		"/large.yaml":   "a.yaml:5: resources[0].rdt.configFile: /large.yaml is larger than 1 MiB",
		"/none.yaml":    "a.yaml:5: resources[0].rdt.configFile: read /none.yaml: file does not exist",
	}
	for path, want := range tests {
		config, err := Parse([]File{{"a.yaml", []byte(resource("name: rdt", "rdt: {configFile: "+path+"}"))}}, fakeKinds(), read)
		if want == "" {
			if err != nil || config.Resources[0].ConfigFile != path || config.Resources[0].Classes[0].Name != "gold" {
				t.Errorf("%s: %v, %v", path, config, err)
			}
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

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

func TestMergedFieldsDoNotReplaceOwnOnes(t *testing.T) {
	text := resource("<<: {name: blockio, defaultClass: bronze}", "defaultClass: gold", "<<: ", "- {scope: container}", "- {scope: nowhere}", "blockio: {classes: {gold: , bronze: }}")
	config, err := parseText(text)
	if err != nil {
		t.Fatal(err)
	}
	if r := config.Resources[0]; r.Name != BlockIOResource || r.DefaultClass != "gold" || r.Scope != ContainerScope {
		t.Errorf("got %+v", r)
	}
}

func TestTextsArriveAtTheBackendAsTheyAre(t *testing.T) {
	text := resource("name: rdt", "rdt:", "  a: |2", "     indented", "    ", "    text  ", "  b: |+", "", "    kept", "", "", "  c: >-", "    folded", "    text", "",
		"    more", `  d: "\t\x00\u2028 # : "`, "  e: 'it''s'", "  f: !!str 12", "  g: 0x1f", "  h: 10M", "  ? |", "    k", "  : v", "  i: |", "    \ttab", "     x")
	want := map[string]any{
		"a": " indented\n\ntext  \n", "b": "\nkept\n\n\n", "c": "folded text\nmore", "d": "\t\x00\u2028 # : ", "e": "it's", "f": "12", "g": 31, "h": "10M", "k\n": "v", "i": "\ttab\n x\n",
	}
	kinds := anyKinds()
	var got map[string]any
	kinds[0].Parse = func(section []byte) (BackendConfig, error) { return fakeConfig{}, yaml.Unmarshal(section, &got) }
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
		"an alias bomb":        {bomb, "has aliases that stand for more than 100000 values; write fewer"},
		"an alias to itself":   {"a: &a [*a]\n", "is nested deeper than 50 levels"},
		"deep nesting":         {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "is nested deeper than 50 levels"},
		"deeper than the YAML": {strings.Repeat("[", 500000), "is not YAML"},
		"a large file":         {strings.Repeat("#", maxFileSize+1), "is larger than 1 MiB"},
		"zeros":                {"\x00\x00\x00", "is not YAML"},
		"an ELF file":          {"\x7fELF\x02\x01\x01\x00\xff\xfe", "is not YAML"},
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
			if text := err.Error(); strings.Contains(text, "\n") || len(text) > 300 {
				t.Errorf("not one short line: %.500q", text)
			}
		})
	}
}

// anyKinds accept every section, and offer what the class file lists.
func anyKinds(names ...string) []Kind {
	kinds := fakeKinds()
	for i := range kinds {
		kinds[i].Parse = func([]byte) (BackendConfig, error) { return fakeConfig(names), nil }
	}
	return kinds
}

func TestExamplesAreRight(t *testing.T) {
	examples, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(examples) < 3 {
		t.Fatalf("found %v, %v", examples, err)
	}
	for _, name := range examples {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kinds := anyKinds("exclusive", "limited", "high-prio", "throttled", "fast", "slow", "shared", "quiet")
		if _, err := Parse([]File{{name, data}}, kinds, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	var text strings.Builder
	for i := range 250 {
		fmt.Fprintf(&text, "f%d: 1\n", i)
	}
	_, err := parseText("apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\n" + text.String())
	problems := SplitErrors(err)
	if len(problems) != 101 || problems[100].Error() != "a.yaml: has 150 more problems" {
		t.Errorf("%d problems, the last: %v", len(problems), problems[len(problems)-1])
	}
}

func TestSplitErrorsKeepsWhatSaysMoreThanItsParts(t *testing.T) {
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

func TestFieldErrorsShowWhatTheyKnow(t *testing.T) {
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
