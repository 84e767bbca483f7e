// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
)

// block is a block of code of a page.
type block struct{ page, language, text string }

// blocks returns the blocks of code of the README and of all pages below docs.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(os.DirFS(repository), "docs", func(name string, _ fs.DirEntry, err error) error {
		if filepath.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, page := range pages {
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

// A resource of a class file has a name and one of these sections.
var (
	resourceItem = regexp.MustCompile(`(?m)\A(?: *#.*\n)*- name: `)
	section      = regexp.MustCompile(`(?m)^  (rdt|blockio|volumeio):`)
)

// classFile returns the class file in a block. A block can have a whole class file, or items of its list of resources.
func classFile(b block) (string, bool) {
	switch {
	case b.language != "yaml" || strings.Contains(b.text, "{…}"):
		return "", false
	case strings.Contains("\n"+b.text, "\nkind: QOSClassConfig"):
		return b.text, true
	}
	return "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources:\n" + b.text,
		resourceItem.MatchString(b.text) && section.MatchString(b.text)
}

// TestClassFilesOfThePagesAreValid reads the class files in the pages as "qos-nri-plugin check --offline" does.
func TestClassFilesOfThePagesAreValid(t *testing.T) {
	count := 0
	for _, b := range blocks(t) {
		text, is := classFile(b)
		if !is {
			continue
		}
		count++
		file := filepath.Join(t.TempDir(), "classes.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := config.Read(file, config.OfflineKinds(), config.HostFiles(t.TempDir())).Err; err != nil {
			t.Errorf("%s: %v\n%s", b.page, err, text)
		}
	}

	if count < 11 {
		t.Errorf("the pages have %d class files", count)
	}
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

	if count < 11 {
		t.Errorf("the pages have %d objects of Kubernetes", count)
	}
}
