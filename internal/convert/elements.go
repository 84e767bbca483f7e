// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// removeElement takes an element of a list away, and leaves its comments. Others stay.
func (d *document) removeElement(list, element *yaml.Node, comments []string) {
	i := slices.Index(list.Content, element)
	switch {
	case !isFlow(list):
		d.removeLines(d.dash(element), d.lineEnd(d.end(element, -1)), comments)
	case i+1 < len(list.Content):
		d.replaceText(d.offset(element), d.offset(list.Content[i+1]), "")
	default:
		d.replaceText(d.end(list.Content[i-1], -1), d.end(element, -1), "")
	}
	d.later(func() {
		i := slices.Index(list.Content, element)
		list.Content = slices.Delete(list.Content, i, i+1)
	})
}

// dash is where the one of an element is in a list in block style.
func (d *document) dash(element *yaml.Node) int {
	return max(d.skipBack(d.offset(element))-1, 0)
}

// follows puts an object behind one: behind its document, or when it is in a list, as the next element.
func (d *document) follows(list, n *yaml.Node, text string) {
	next := &yaml.Node{}
	pad := ""
	if !isFlow(n) {
		pad = strings.Repeat(" ", d.column(d.offset(n))) // as its other lines have
	}
	if roots, err := parse([]byte(pad + text)); err == nil && len(roots) == 1 {
		next = roots[0]
	}
	end := d.end(n, -1)
	switch {
	case list == nil:
		end = d.lineEnd(end)
		d.replaceText(end, end, d.newline+"---"+d.newline+text)
		d.later(func() { d.follow = next })
		return
	case isFlow(list):
		d.replaceText(end, end, ", "+text)
	default:
		dash := d.dash(n)
		indent := d.newline + strings.Repeat(" ", d.column(dash))
		end = d.lineEnd(end)
		d.replaceText(end, end, indent+"-"+strings.Repeat(" ", max(d.offset(n)-dash-1, 1))+text)
	}
	d.later(func() { list.Content = slices.Insert(list.Content, slices.Index(list.Content, n)+1, next) })
}
