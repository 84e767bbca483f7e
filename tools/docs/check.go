// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"

	"golang.org/x/net/html"
)

// links has the ids of an HTML file, and the targets of its links.
type links struct {
	ids     map[string]bool
	targets []string
}

// check parses all HTML files, and reports links within the site that lead nowhere, ids that occur twice, pages to
// which no other page links, and scripts, styles and images from other sites.
func check(files map[string][]byte) (problems []error) {
	pages := map[string]links{}
	for name, data := range files {
		if path.Ext(name) != ".html" {
			continue
		}
		found, errs := linksOf(name, data)
		problems = append(problems, errs...)
		pages[name] = found
	}

	linked := map[string]bool{"index.html": true}
	for name, page := range pages {
		for _, target := range page.targets {
			to, err := follow(name, target, files, pages)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: link %s: %w", name, target, err))
			}
			linked[to] = linked[to] || to != name
		}
	}

	for name := range pages {
		if !linked[name] {
			problems = append(problems, fmt.Errorf("%s: no page links to it", name))
		}
	}

	return problems
}

// linksOf reads one HTML file.
func linksOf(name string, data []byte) (links, []error) {
	var problems []error
	found := links{ids: map[string]bool{}}
	document, err := html.Parse(bytes.NewReader(data))
	if err != nil {
		return found, []error{fmt.Errorf("%s: %w", name, err)}
	}

	for node := range document.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				if found.ids[attribute.Val] {
					problems = append(problems, fmt.Errorf("%s: two elements have the id %q", name, attribute.Val))
				}
				found.ids[attribute.Val] = true
			case "href", "src":
				found.targets = append(found.targets, attribute.Val)
				if link, err := url.Parse(attribute.Val); node.Data != "a" && (err != nil || link.Scheme+link.Host != "") {
					problems = append(problems, fmt.Errorf("%s: loads %s, which is not part of the site", name, attribute.Val))
				}
			}
		}
	}

	return found, problems
}

// follow returns the file of the site to which a link leads, and "" for a link out of the site.
func follow(from, target string, files map[string][]byte, pages map[string]links) (string, error) {
	link, err := url.Parse(target)
	if err != nil || link.Scheme != "" || link.Host != "" {
		return "", err
	}

	to := from
	if link.Path != "" {
		to = path.Join(path.Dir(from), link.Path)
	}

	if _, exists := files[to]; !exists {
		return "", fmt.Errorf("the site does not have %s", to)
	}

	if link.Fragment != "" && !pages[to].ids[link.Fragment] {
		return to, fmt.Errorf("%s has no heading with this anchor", to)
	}

	return to, nil
}
