// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// page is a Markdown file of the checkout, and the page of the site that is generated from it.
type page struct {
	Title    string
	Headings []heading // of the second level
	file     string    // the path in the checkout
	output   string    // the path in the site
	source   []byte
	document ast.Node
}

type heading struct{ ID, Text string }

func markdown() goldmark.Markdown { return goldmark.New(goldmark.WithExtensions(extension.GFM)) }

func parse(file string, source []byte) *page {
	p := &page{file: file, output: outputOf(file), source: source, document: markdown().Parser().Parse(text.NewReader(source))}
	used := map[string]int{}
	p.walk(func(node ast.Node) {
		h, ok := node.(*ast.Heading)
		if !ok {
			return
		}
		title := p.text(h)
		id := anchor(title, used)
		h.SetAttributeString("id", []byte(id))
		switch {
		case h.Level == 1 && p.Title == "":
			p.Title = title
		case h.Level == 2:
			p.Headings = append(p.Headings, heading{id, title})
		}
	})

	return p
}

// outputOf returns the path of a page in the site. A README is the index of its directory.
func outputOf(file string) string {
	directory, name := path.Split(file)
	if name == "README.md" {
		return directory + "index.html"
	}
	return strings.TrimSuffix(file, ".md") + ".html"
}

// html returns the text of the page. Tables and code can be scrolled by keyboard, on a narrow screen too.
func (p *page) html() (string, error) {
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, p.source, p.document); err != nil {
		return "", err
	}
	return strings.NewReplacer("<pre>", `<pre tabindex="0">`,
		"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>").Replace(out.String()), nil
}

// walk calls visit for each node of the document, parents first.
func (p *page) walk(visit func(ast.Node)) {
	_ = ast.Walk(p.document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

// text returns the text in a node without markup.
func (p *page) text(node ast.Node) string {
	var out strings.Builder
	for child := node.FirstChild(); child != nil; child = child.NextSibling() {
		switch child := child.(type) {
		case *ast.Text:
			out.Write(child.Value(p.source))
			if child.SoftLineBreak() {
				out.WriteByte(' ')
			}
		case *ast.String:
			out.Write(child.Value)
		default:
			out.WriteString(p.text(child))
		}
	}

	return out.String()
}

// anchor returns the id that forges such as GitHub give to a heading. The map `used` counts the ids of the page so far.
func anchor(title string, used map[string]int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)

	count := used[id]
	used[id]++
	if count > 0 {
		id += "-" + strconv.Itoa(count)
	}

	return id
}
