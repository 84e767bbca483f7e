// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// maxProblem is the maximum length of an error message for a class file, in bytes. It is enough for a file name, a
// field, a list of names, and text from the file with every character escaped.
const maxProblem = 8 << 10

// scalars returns the keys and values of a YAML document.
func scalars(node *yaml.Node) (found []*yaml.Node) {
	if node.Kind == yaml.ScalarNode {
		found = append(found, node)
	}
	for _, child := range node.Content {
		found = append(found, scalars(child)...)
	}
	return found
}

func TestAProblemWithAnyTextInAClassFileIsAShortLine(t *testing.T) {
	files, err := filepath.Glob("../../config/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d example class files, error %v", len(files), err)
	}

	texts := []string{strings.Repeat("x", 20<<10), strings.Repeat("9", 20<<10), strings.Repeat("\x1b[2J\u009b\n", 2<<10) + "%", "\u202e"}
	problems := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		var document yaml.Node
		must(t, yaml.Unmarshal(data, &document))
		for _, scalar := range scalars(&document) {
			before := *scalar
			for _, text := range texts {
				*scalar = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
				problems += wantShortLines(t, fmt.Sprintf("%s:%d: %s", file, before.Line, before.Value), &document)
			}
			*scalar = before
		}
	}

	if problems == 0 {
		t.Error("there are no problems")
	}
}

// wantShortLines fails the test if a problem of a class file is not a short printable line. It returns the number of problems.
func wantShortLines(t *testing.T, what string, document *yaml.Node) int {
	t.Helper()
	data, err := yaml.Marshal(document)
	must(t, err)

	_, err = classes.Parse([]classes.File{{Name: "a.yaml", Data: data}}, config.OfflineKinds(), config.HostFiles(t.TempDir()))
	problems := classes.SplitErrors(err)
	for _, problem := range problems {
		text := problem.Error()
		if len(text) > maxProblem || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %d bytes: %.300q", what, len(text), text)
		}
	}

	return len(problems)
}
