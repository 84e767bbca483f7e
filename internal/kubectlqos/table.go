// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Words that people see.
const (
	systemDefault = "<system default>" // the empty class, which enforces nothing
	wholePod      = "<pod>"            // where others have the name of a container
	nothing       = "-"
	unlimited     = "inf" // KEP-3008, "Kubectl"
)

// gap is what is between two columns, as kubectl has it.
const gap = 3

// table is rows of cells, the header first. Rows may have fewer cells than others.
type table [][]string

// columns remembers how wide columns were, so that rows that come later stand below those before.
type columns []int

// format aligns a table, with an indent before each row, and no spaces at the ends of lines.
func (c *columns) format(t table, indent string) string {
	for _, row := range t {
		for i, cell := range row {
			if i == len(*c) {
				*c = append(*c, 0)
			}
			(*c)[i] = max((*c)[i], utf8.RuneCountInString(plain(cell)))
		}
	}
	var text strings.Builder
	for _, row := range t {
		line := indent
		for i, cell := range row {
			cell = plain(cell)
			line += cell + strings.Repeat(" ", (*c)[i]-utf8.RuneCountInString(cell)+gap)
		}
		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return text.String()
}

// String is the table by itself.
func (t table) String() string { return (&columns{}).format(t, "") }

// plain takes out what could break a line or control a terminal: descriptions and messages are others' words.
func plain(cell string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, cell)
}

func className(class string) string {
	if class == "" {
		return systemDefault
	}
	return class
}

func yesNo(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

func orNothing(text string) string {
	if text == "" {
		return nothing
	}
	return text
}

func timeText(t *metav1.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
