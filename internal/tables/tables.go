// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tables formats the tables of "qos-nri-plugin" and "kubectl qos", and computes those that show what classes and
// containers use.
package tables

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// Align formats rows, each on a line with the given indentation. The rows may have different numbers of cells. Columns have at
// least `width` characters, and at least `gap` blanks between them.
func Align(rows [][]string, indent string, width, gap int) string {
	columns := 0
	for _, row := range rows {
		columns = max(columns, len(row))
	}

	var text strings.Builder
	w := tabwriter.NewWriter(&text, width, 0, gap, ' ', 0)
	for _, row := range rows {
		cells := make([]string, columns)
		for i, cell := range row {
			cells[i] = program.Printable(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a strings.Builder has no errors
	return Trim(text.String(), indent)
}

// Trim indents lines, and removes the blanks at their ends.
func Trim(text, indent string) string {
	var trimmed strings.Builder
	for line := range strings.Lines(text) {
		trimmed.WriteString(strings.TrimRight(indent+line, " \n") + "\n")
	}
	return trimmed.String()
}
