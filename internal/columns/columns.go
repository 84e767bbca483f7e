// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package columns aligns the cells of tables, for people.
package columns

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Widths remembers how wide columns were, so that rows that come later stand below those before.
type Widths []int

// Format aligns rows, with an indent before each and gap spaces between columns, and no spaces at the ends of lines. Rows may have
// fewer cells than others.
func (w *Widths) Format(rows [][]string, indent string, gap int) string {
	for _, row := range rows {
		for i, cell := range row {
			if i == len(*w) {
				*w = append(*w, 0)
			}
			(*w)[i] = max((*w)[i], utf8.RuneCountInString(Plain(cell)))
		}
	}
	var text strings.Builder
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(indent)
		for i, cell := range row {
			cell = Plain(cell)
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", (*w)[i]-utf8.RuneCountInString(cell)+gap))
		}
		text.WriteString(strings.TrimRight(line.String(), " "))
		text.WriteByte('\n')
	}
	return text.String()
}

// Plain takes out what could break a line or control a terminal: descriptions and messages are others' words.
func Plain(cell string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, cell)
}
