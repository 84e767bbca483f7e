// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestFiguresOfSizingAreMeasured looks up each figure with a unit in the section "Sizing" of docs/operate.md. Each figure
// must be in docs/performance.md, which "make bench" fills.
func TestFiguresOfSizingAreMeasured(t *testing.T) {
	_, sizing, _ := strings.Cut(read(t, "docs/operate.md"), "\n## Sizing\n")
	sizing, _, _ = strings.Cut(sizing, "\n## ")
	measured := strings.Join(strings.Fields(read(t, "docs/performance.md")), " ")
	figures := regexp.MustCompile(`[\d.]+\s+(MiB|µs|ms|s|%)`).FindAllString(sizing, -1)
	if len(figures) < 6 {
		t.Errorf("the section has only the figures %q, want at least 6", figures)
	}
	for _, figure := range figures {
		words := strings.Join(strings.Fields(figure), " ")
		if !regexp.MustCompile(`(^|[^\d.])` + regexp.QuoteMeta(words)).MatchString(measured) {
			t.Errorf("docs/performance.md does not have %s", words)
		}
	}
}
