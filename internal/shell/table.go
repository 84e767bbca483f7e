// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell is what the node's shell shows: tables and documents of the node API.
package shell

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// SystemDefault is how people see the empty class, which enforces nothing.
const SystemDefault = "<system default>"

// Unlimited is how people see the capacity 0.
const Unlimited = "unlimited"

// table is rows of equally many cells, the header first.
type table [][]string

// appendTo writes the columns aligned, two spaces apart, and no spaces at the ends of lines.
func (t table) appendTo(text *strings.Builder) {
	widths := make([]int, len(t[0]))
	for _, row := range t {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(plain(cell)))
		}
	}
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row {
			cell = plain(cell)
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		text.WriteString(strings.TrimRight(line.String(), " "))
		text.WriteByte('\n')
	}
}

// plain takes out what could break a line or control a terminal.
func plain(cell string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, cell)
}

func classText(class string) string {
	if class == "" {
		return SystemDefault
	}
	return class
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "never"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}
