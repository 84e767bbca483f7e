// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell formats the answers of the node API as tables and documents, for the shell of a node.
package shell

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// These texts stand for values that have no name.
const (
	// SystemDefault stands for the empty class, which enforces nothing.
	SystemDefault = "<system default>"
	// Unlimited stands for the capacity 0.
	Unlimited = "unlimited"
	// wholePod stands for the pod as a whole, in the column of container names.
	wholePod = "<pod>"
)

// table has rows with the same number of cells. The first row is the header.
type table [][]string

// appendTo appends the table to text. It first appends an empty line if text is not empty. It appends nothing if the
// table has no rows below the header.
func (t table) appendTo(text *strings.Builder) {
	if len(t) < 2 {
		return
	}
	if text.Len() > 0 {
		text.WriteByte('\n')
	}

	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range t {
		cells := make([]string, 0, len(row))
		for _, cell := range row {
			cells = append(cells, program.Printable(cell))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a strings.Builder has no errors
	for line := range strings.Lines(aligned.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func classText(class string) string { return cmp.Or(class, SystemDefault) }

func containerText(name string) string { return cmp.Or(name, wholePod) }

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
