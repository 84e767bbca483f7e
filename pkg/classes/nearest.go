// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import "strings"

// maxTypos is the maximum distance between a name and the name that is suggested instead.
const maxTypos = 2

// Suggestion returns " (did you mean NAME?)" if one of the known names resembles a name, and otherwise "". The case of letters does not
// matter.
func Suggestion(name string, known []string) string {
	best, least := "", min(maxTypos, len(name)/2)+1
	for _, candidate := range known {
		if d := distance(strings.ToLower(clip(name)), strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance returns the number of bytes to insert, remove or replace that turns one text into the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := before
			if a[i] != b[j] {
				replaced++
			}
			before = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
