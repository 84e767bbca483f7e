// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed" // the template and the style
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// index is the page that lists the other pages in the order in which a reader needs them.
const index = "docs/README.md"

//go:embed page.html
var layout string

//go:embed style.css
var style []byte

// site has the data that all pages share.
type site struct {
	tree     fs.FS
	source   string           // the URL of the repository
	pages    map[string]*page // by path in the checkout
	sections []section
	files    map[string][]byte // the files of the site
}

// section is a heading of the navigation with its pages.
type section struct {
	Title   string
	Entries []entry
}

type entry struct {
	Title string
	page  *page
}

// build returns the files of the site by path. A problem names a page and what is wrong with it.
func build(tree fs.FS, source string) (map[string][]byte, []error) {
	s := &site{tree: tree, source: source, pages: map[string]*page{}, files: map[string][]byte{"style.css": style}}
	if err := s.read(); err != nil {
		return nil, []error{err}
	}

	s.sections = s.navigation()

	var problems []error
	for _, p := range s.pages {
		problems = append(problems, s.resolveLinks(p)...)
	}

	if len(problems) > 0 {
		return nil, sorted(problems) // check would report these links again
	}

	for _, p := range s.pages {
		if err := s.render(p); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.file, err))
		}
	}

	return s.files, sorted(append(problems, check(s.files)...))
}

func sorted(problems []error) []error {
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// read parses all pages: README.md, CONTRIBUTING.md and all Markdown files below docs.
func (s *site) read() error {
	files := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(s.tree, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		return err
	}

	for _, file := range files {
		data, err := fs.ReadFile(s.tree, file)
		if err != nil {
			return err
		}
		s.pages[file] = parse(file, data)
	}

	if s.pages[index] == nil {
		return errors.New(index + " is missing: it lists the pages for the navigation")
	}

	return nil
}

// render makes the HTML file of a page.
func (s *site) render(p *page) error {
	body, err := p.html()
	if err != nil {
		return err
	}

	previous, next := s.neighbours(p)
	// The body needs no escapes: goldmark has generated it from Markdown, without the raw HTML in it.
	data := map[string]any{
		"Page": p, "Body": template.HTML(body), "Sections": s.sections, "Previous": previous, "Next": next, //nolint:gosec // see above
		"Home": s.pages["README.md"],
	}

	page, err := template.New("page").Funcs(template.FuncMap{
		"link":    func(e entry) string { return relative(p.output, e.page.output) },
		"current": func(e entry) bool { return e.page == p },
		"file":    func(name string) string { return relative(p.output, name) },
	}).Parse(layout)
	if err != nil {
		return err
	}

	var out bytes.Buffer
	err = page.Execute(&out, data)
	s.files[p.output] = out.Bytes()
	return err
}

// neighbours returns the entries before and after a page in the navigation. An entry that does not exist is nil.
func (s *site) neighbours(p *page) (previous, next *entry) {
	var all []entry
	for _, section := range s.sections {
		all = append(all, section.Entries...)
	}
	at := slices.IndexFunc(all, func(e entry) bool { return e.page == p })
	if at > 0 {
		previous = &all[at-1]
	}
	if at >= 0 && at+1 < len(all) {
		next = &all[at+1]
	}
	return previous, next
}
