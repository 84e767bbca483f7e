// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"strings"
	"unicode/utf8"
)

// Cut truncates a text to limit bytes. A truncated text ends with mark. Cut also replaces invalid UTF-8, because the
// API server rejects it.
func Cut(text string, limit int, mark string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	end := max(limit-len(mark), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + mark
}
