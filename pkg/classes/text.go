// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEcho bounds what errors repeat of a user's text, in bytes. A class name can have 63.
const maxEcho = 64

// clip makes text of users fit for an error of one line: short and printable.
func clip(text string) string {
	dots := ""
	if len(text) > maxEcho {
		text, dots = text[:maxEcho], "..."
	}
	return strings.Map(replaceUnprintable, text) + dots
}

func replaceUnprintable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// clipKey keeps an annotation's prefix, which is ours, and clips the rest, which is not.
func clipKey(key string) string {
	prefix, rest, found := strings.Cut(key, "/")
	if !found {
		return clip(key)
	}
	return clip(prefix) + "/" + clip(rest)
}

func quote(text string) string { return `"` + clip(text) + `"` }
