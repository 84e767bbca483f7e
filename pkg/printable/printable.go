// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package printable makes texts from users and other programs safe for one line in a terminal or a log.
package printable

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces each unprintable character with "?". If `text` is longer than `limit` bytes, the result is its beginning and
// "...".
func Text(text string, limit int) string {
	dots := ""
	if len(text) > limit {
		text, dots = text[:limit], "..."
	}
	return strings.Map(replaceUnprintable, text) + dots
}

func replaceUnprintable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// List joins the first `most` names. If there are more, the text ends with the number of the other names.
func List(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
