// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"

	"github.com/yuin/goldmark/ast"
)

// navigation returns the sections of the index page. Each section has the pages to which its lists link. A page is an entry of the
// navigation only once; further links to the page are ignored.
func (s *site) navigation() (sections []section) {
	p := s.pages[index]
	listed := map[*page]bool{}
	p.walk(func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Heading:
			if node.Level == 2 {
				sections = append(sections, section{Title: p.text(node)})
			}
		case *ast.Link:
			target := s.pages[path.Join(path.Dir(p.file), string(node.Destination))]
			if len(sections) == 0 || target == nil || listed[target] {
				return
			}
			listed[target] = true
			last := &sections[len(sections)-1]
			last.Entries = append(last.Entries, entry{p.text(node), target})
		}
	})

	return sections
}

// resolveLinks changes links to files of the checkout: they then lead to a file of the site, or to the repository.
func (s *site) resolveLinks(p *page) (problems []error) {
	resolve := func(destination []byte, image bool) []byte {
		target, err := s.resolve(p, string(destination), image)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: link %s: %w", p.file, destination, err))
		}
		return []byte(target)
	}

	p.walk(func(node ast.Node) {
		switch node := node.(type) {
		case *ast.Link:
			node.Destination = resolve(node.Destination, false)
		case *ast.Image:
			node.Destination = resolve(node.Destination, true)
		}
	})

	return problems
}

// resolve converts the destination of a link on page `p` to the destination in the site: another page, an image, or a
// file in the repository. URLs of other sites stay as they are. If `image` is true, it also copies the image into the
// site.
func (s *site) resolve(p *page, destination string, image bool) (string, error) {
	link, err := url.Parse(destination)
	if err != nil || link.Scheme != "" || link.Path == "" {
		return destination, err
	}

	file := path.Join(path.Dir(p.file), link.Path)
	info, err := fs.Stat(s.tree, file)
	if err != nil {
		return destination, err
	}

	if image {
		s.files[file], err = fs.ReadFile(s.tree, file)
		return relative(p.output, file), err
	}

	target := s.pages[file]
	if target == nil {
		target = s.pages[path.Join(file, "README.md")]
	}

	if target != nil {
		link.Path = relative(p.output, target.output)
		return link.String(), nil
	}

	kind := "blob"
	if info.IsDir() {
		kind = "tree"
	}

	link.Path = "/" + path.Join(kind, "main", file)
	return s.source + link.String(), nil
}

// relative returns the link from one file of the site to another.
func relative(from, to string) string {
	link, err := filepath.Rel(path.Dir(from), to)
	if err != nil {
		return to // both are relative to the site, so this does not happen
	}
	return filepath.ToSlash(link)
}
