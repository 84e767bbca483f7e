// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"strings"
	"unicode/utf8"
)

// Cut keeps at most limit bytes of a text, mark included, which is put where it ends early. What is not UTF-8, which the API
// refuses, is replaced.
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
