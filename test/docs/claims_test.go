// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestEachClaimNamesATestThatExists reads docs/what-happens-when.md. Each item of its lists must have a comment with the names of
// the functions that test it, e.g. "<!-- TestDrift, remounted -->".
func TestEachClaimNamesATestThatExists(t *testing.T) {
	known := testFunctions(t)
	page, _, _ := strings.Cut(read(t, "docs/what-happens-when.md"), "\n## How this is tested")
	claims := regexp.MustCompile(`(?m)^- \*\*`).Split(page, -1)[1:]
	if len(claims) < 50 {
		t.Errorf("the page has %d claims", len(claims))
	}

	comment := regexp.MustCompile(`(?s)<!--(.*?)-->`)
	for _, claim := range claims {
		title, _, _ := strings.Cut(claim, "**")
		found := comment.FindStringSubmatch(claim)
		if found == nil {
			t.Errorf("the item %q names no test", title)
			continue
		}
		for name := range strings.SplitSeq(found[1], ",") {
			if name = strings.TrimSpace(name); !known[name] {
				t.Errorf("the item %q names %q, which is not a test", title, name)
			}
		}
	}
}

// testFunctions returns the names of all functions and methods in test files that get a *testing.T.
func testFunctions(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)\(t \*testing\.T`).FindAllStringSubmatch(testSources(t), -1) {
		names[match[1]] = true
	}
	return names
}

// testSources returns the text of all test files.
func testSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range goFiles(t, true, ".") {
		all.WriteString(read(t, file))
	}
	return all.String()
}

// TestTheTestsThatPagesNameExist looks for each name like `TestVM` in the pages, and for the subtest in
// `TestRequests/the_examples_of_KEP-3008`.
func TestTheTestsThatPagesNameExist(t *testing.T) {
	functions, cases := testFunctions(t), testSources(t)
	for _, page := range pages(t) {
		for _, name := range regexp.MustCompile("`(Test[A-Z]\\w*)(?:/([^`]+))?`").FindAllStringSubmatch(read(t, page), -1) {
			if !functions[name[1]] {
				t.Errorf("%s: %s is no test", page, name[1])
			}

			if subtest := strings.ReplaceAll(name[2], "_", " "); subtest != "" && !strings.Contains(cases, `"`+subtest+`"`) {
				t.Errorf("%s: %s has no subtest %q", page, name[1], subtest)
			}
		}
	}
}
