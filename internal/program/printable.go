// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"strings"
	"unicode"

	"github.com/qos-nri/qos-nri-plugin/pkg/printable"
)

// Printable replaces characters that could break a line or control a terminal. Such characters can occur in descriptions
// and messages, which are not trusted.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// OneLine joins the lines of a text to one printable line.
func OneLine(text string) string {
	return Printable(strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}

// maxNames is the maximum number of names that an error lists.
const maxNames = 8

// List joins names for an error. If there are more than maxNames, the text has the first ones, and the number of those
// that it leaves out.
func List(names []string) string { return printable.List(names, maxNames) }
