// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// filesOfAKind returns the files that docs/add-a-kind.md lists for a kind, as patterns relative to the root of the repository.
func filesOfAKind(t *testing.T, kind string) (patterns []string) {
	t.Helper()
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+/?[^`]*\\.[a-z*]+)` \\|").FindAllStringSubmatch(read(t, "docs/add-a-kind.md"), -1) {
		patterns = append(patterns, strings.ReplaceAll(row[1], "network", kind))
	}
	return patterns
}

// TestThePageAddAKindListsEachFileOfAKind looks for the files of the page, which adds a kind `network`, with the kind
// `external` in its place.
func TestThePageAddAKindListsEachFileOfAKind(t *testing.T) {
	patterns := filesOfAKind(t, "external")
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join("../..", pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("the page lists %s, which does not exist", pattern)
		}
		for _, file := range files {
			if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "external") {
				t.Errorf("the page lists %s, which does not name the kind external: %v", file, err)
			}
		}
	}

	for _, file := range goFiles(t, false, ".") {
		listed := slices.ContainsFunc(patterns, func(pattern string) bool {
			matches, _ := filepath.Match(pattern, file)
			return matches
		})
		if !listed && strings.Contains(read(t, file), "qos-nri-plugin/pkg/external\"") {
			t.Errorf("%s names the kind external, and the page does not list it", file)
		}
	}
}
