// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// repository is the root of the checkout.
const repository = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the text of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, path))
	must(t, err)
	return string(data)
}

// goFiles returns the paths of the Go files below directories: those of tests, or the others.
func goFiles(t *testing.T, tests bool, directories ...string) (files []string) {
	t.Helper()
	for _, directory := range directories {
		must(t, fs.WalkDir(os.DirFS(repository), directory, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".go" && strings.HasSuffix(path, "_test.go") == tests {
				files = append(files, path)
			}
			return err
		}))
	}
	return files
}

// block is a block of code of a page.
type block struct{ page, language, text string }

// pages returns the names of the README and of all pages below docs.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md"}
	must(t, fs.WalkDir(os.DirFS(repository), "docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// blocks returns the blocks of code of all pages.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	for _, page := range pages(t) {
		all = append(all, blocksOf(page, read(t, page))...)
	}
	return all
}

// blocksOf returns the blocks of code in a text. The text of a block in a list has no indentation.
func blocksOf(page, text string) (all []block) {
	for _, found := range regexp.MustCompile("(?s)\n( *)```(\\w*)\n(.*?\n) *```\n").FindAllStringSubmatch("\n"+text+"\n", -1) {
		text := strings.TrimPrefix(strings.ReplaceAll("\n"+found[3], "\n"+found[1], "\n"), "\n")
		all = append(all, block{page, found[2], text})
	}
	return all
}

// resourceItem finds an item of the list of resources of a class file: its name has a domain, or is short for one.
var resourceItem = regexp.MustCompile(`(?m)\A(?: *#.*\n)*- name: (?:[\w.-]+/[\w.-]+|rdt|blockio)\s`)

// classFile returns the class file in a block. A block can have a whole class file, or items of its list of resources.
func classFile(b block) (string, bool) {
	switch {
	case b.language != "yaml":
		return "", false
	case strings.Contains("\n"+b.text, "\nkind: QOSClassConfig"):
		return b.text, true
	}
	return "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n" + b.text, resourceItem.MatchString(b.text)
}

// classFiles returns the class files in a block: the block itself, and those in the values of the chart.
func classFiles(t *testing.T, b block) (all []string) {
	t.Helper()
	if text, is := classFile(b); is {
		return []string{text}
	}
	if b.language != "yaml" || !strings.Contains(b.text, "classFiles:") {
		return nil
	}

	type files struct{ ClassFiles map[string]string }
	var values struct {
		files `json:",inline"`
		Pools []files
	}
	if err := yaml.Unmarshal([]byte(b.text), &values); err != nil {
		t.Fatalf("%s: %v", b.page, err)
	}
	for _, files := range append(values.Pools, values.files) {
		all = slices.AppendSeq(all, maps.Values(files.ClassFiles))
	}
	return all
}

func TestClassFilesOfThePagesAreValid(t *testing.T) {
	count := 0
	for _, b := range blocks(t) {
		for _, text := range classFiles(t, b) {
			count++
			if err := parsed(t, text).Err; err != nil {
				t.Errorf("%s: %v\n%s", b.page, err, text)
			}
		}
	}

	if count < 20 {
		t.Errorf("the test finds only %d class files in the pages", count)
	}
}

// parsed reads a class file as "qos-nri-plugin check --offline" does.
func parsed(t *testing.T, text string) classes.FileSet {
	t.Helper()
	file := filepath.Join(t.TempDir(), "classes.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return config.Read(file, config.OfflineKinds(), costModels(t))
}

// costModels returns a function that reads the cost model in docs/blockio.md, and no other file.
func costModels(t *testing.T) func(path string) ([]byte, error) {
	t.Helper()
	return func(path string) ([]byte, error) {
		for _, b := range blocksOf("docs/blockio.md", read(t, "docs/blockio.md")) {
			if strings.HasPrefix(b.text, "device:") && strings.HasSuffix(path, "-cost.yaml") {
				return []byte(b.text), nil
			}
		}
		return nil, fs.ErrNotExist
	}
}

// TestPagesOfferTheVendorResourcesThatTheyName compares the resources of vendors in the pages, and their extended resources, with the
// class files of the same page and with the example in docs/class-files.md.
func TestPagesOfferTheVendorResourcesThatTheyName(t *testing.T) {
	example := blocksOf("docs/class-files.md", read(t, "docs/class-files.md"))
	named := regexp.MustCompile(`vendor\.example/([\w-]+)(?:[.=]([\w-]+))?`)
	count := 0
	for _, page := range []string{"docs/class-files.md", "docs/requests.md", "docs/policies.md", "docs/kubectl.md", "docs/plugin.md", "docs/shim.md"} {
		text := read(t, page)
		offered := offeredBy(t, append(blocksOf(page, text), example...))
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			resource, class := "vendor.example/"+found[1], found[2]
			if resource == "vendor.example/a" {
				continue // an example of a name alone
			}
			count++
			if class == "" && !anyOf(offered, resource+"=") || class != "" && !offered[resource+"="+class] {
				t.Errorf("%s names %s, and no class file offers it", page, found[0])
			}
		}
	}
	if count < 20 {
		t.Errorf("the test finds only %d names of vendors' resources in the pages", count)
	}
}

// anyOf reports whether a key begins with `prefix`.
func anyOf(keys map[string]bool, prefix string) bool {
	for key := range keys {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// TestYAMLOfThePagesParses parses each block of YAML. A duplicate key is an error, too.
func TestYAMLOfThePagesParses(t *testing.T) {
	for _, b := range blocks(t) {
		if b.language != "yaml" || strings.Contains(b.text, "…") {
			continue
		}
		for _, document := range strings.Split(b.text, "\n---\n") {
			var value any
			if err := goyaml.Unmarshal([]byte(document), &value); err != nil {
				t.Errorf("%s: %v\n%s", b.page, err, document)
			}
		}
	}
}

// TestObjectsOfThePagesAreValid decodes the Kubernetes objects in the pages as strictly as "kubectl apply --validate=strict". It
// leaves out objects with the fields of KEP-3008, because Kubernetes does not have these fields.
func TestObjectsOfThePagesAreValid(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	count := 0
	for _, b := range blocks(t) {
		if b.language != "yaml" || strings.Contains(b.text, "…") || strings.Contains(b.text, "qosResources:") {
			continue
		}
		for _, document := range strings.Split(b.text, "\n---\n") {
			if !strings.Contains("\n"+document, "\napiVersion: ") {
				continue // a part of an object
			}
			_, _, err := decoder.Decode([]byte(document), nil, nil)
			if runtime.IsNotRegisteredError(err) {
				continue // an object of another project
			}
			count++
			if err != nil {
				t.Errorf("%s: %v\n%s", b.page, err, document)
			}
		}
	}

	if count < 20 {
		t.Errorf("the test finds only %d objects of Kubernetes in the pages", count)
	}
}
