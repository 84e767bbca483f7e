// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestSiteOfThisCheckout builds the site. A link that leads nowhere is a problem.
func TestSiteOfThisCheckout(t *testing.T) {
	files, problems := build(os.DirFS("../.."), "https://repository.example")
	if len(problems) > 0 {
		t.Error(errors.Join(problems...))
	}

	for name, want := range map[string]string{
		"index.html":           `href="docs/kubernetes.html"`,
		"docs/kubernetes.html": `href="https://repository.example/tree/main/deploy/chart"`,
		"docs/index.html":      `href="decisions/index.html"`,
		"docs/rdt.html":        `<a href="rdt.html" aria-current="page">`,
	} {
		if !strings.Contains(string(files[name]), want) {
			t.Errorf("%s does not contain %s", name, want)
		}
	}
}

// TestRunReplacesTheSite checks that the new site is written, and that no file of an earlier build stays.
func TestRunReplacesTheSite(t *testing.T) {
	output := filepath.Join(t.TempDir(), "site")
	old := filepath.Join(output, "old.html")
	if err := write(output, map[string][]byte{"old.html": nil}); err != nil {
		t.Fatal(err)
	}

	if err := run("../..", output, "https://repository.example", io.Discard); err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("%s: %v", old, err)
	}

	if _, err := os.Stat(filepath.Join(output, "docs", "index.html")); err != nil {
		t.Error(err)
	}
}

// TestProblems builds a site of four small pages. Each case adds files, or replaces the text of pages.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string // in addition to the pages below
		want  string            // a part of the only problem
	}{
		"no problem":                         {nil, ""},
		"a file is missing":                  {map[string]string{"README.md": "# X\n[All](docs/README.md) [no](docs/no.md)"}, "README.md: link docs/no.md"},
		"a link to a file of the repository": {map[string]string{"README.md": "# X\n[All](docs/README.md) [dir](docs)"}, ""},
		"an anchor is missing": {map[string]string{"docs/a.md": "# A\n[b](../README.md#b)"},
			"docs/a.html: link ../index.html#b: index.html has no heading with this anchor"},
		"anchors are those of forges":       {map[string]string{"docs/a.md": "# A\n## `b`: C, d_e-f?\n## `b`: C, d_e-f?\n[1](#b-c-d_e-f) [2](#b-c-d_e-f-1)"}, ""},
		"an anchor of this page is missing": {map[string]string{"docs/a.md": "# A\n[b](#b)"}, "docs/a.html: link #b"},
		"a page is linked by no page":       {map[string]string{"docs/b.md": "# B\n[b](b.md)"}, "docs/b.html: no page links to it"},
		"an image is missing":               {map[string]string{"docs/a.md": "# A\n![b](b.svg)"}, "docs/a.md: link b.svg"},
		"an image is copied":                {map[string]string{"docs/a.md": "# A\n![b](b.svg)", "docs/b.svg": "<svg/>"}, ""},
		"an image is from elsewhere": {map[string]string{"docs/a.md": "# A\n![b](https://other.example/b.svg)"},
			"docs/a.html: loads https://other.example/b.svg"},
		"a heading has an id of the template": {map[string]string{"docs/a.md": "# A\n## Pages"}, `docs/a.html: two elements have the id "pages"`},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"README.md": "# X\n[All](docs/README.md)", "CONTRIBUTING.md": "# C",
				"docs/README.md": "# All\n## Start\n- [A](a.md): [C](../CONTRIBUTING.md)", "docs/a.md": "# A"}
			maps.Copy(files, c.files)
			tree := fstest.MapFS{}
			for file, text := range files {
				tree[file] = &fstest.MapFile{Data: []byte(text)}
			}

			_, problems := build(tree, "https://repository.example")
			if got := errors.Join(problems...); c.want == "" && got != nil || c.want != "" && (len(problems) != 1 || !strings.Contains(got.Error(), c.want)) {
				t.Errorf("got %v, want %q", got, c.want)
			}
		})
	}
}
