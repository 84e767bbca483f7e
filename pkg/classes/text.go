// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxEcho bounds what errors repeat of a user's text, in bytes; a class name can have 63.
const maxEcho = 64

// clip makes foreign text fit for an error of one line: short, and printable.
func clip(text string) string {
	cut := len(text) > maxEcho
	if cut {
		text = text[:maxEcho]
	}
	if !printable(text) {
		text = strings.Map(replaceUnprintable, text)
	}
	if cut {
		text += "..."
	}
	return text
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

func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func replaceUnprintable(r rune) rune {
	if r == utf8.RuneError || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}
