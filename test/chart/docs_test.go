// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTheValuesInThePageAreValid renders the chart with each block of values in docs/kubernetes.md: those that begin with the image or the
// pools. The chart has a schema that refuses unknown keys.
func TestTheValuesInThePageAreValid(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/kubernetes.md"))
	must(t, err)
	blocks := regexp.MustCompile("(?s)\n```yaml\n((?:image|pools):\n.*?)\n```\n").FindAllSubmatch(page, -1)
	if len(blocks) < 2 {
		t.Errorf("the page has %d blocks of values, want at least 2", len(blocks))
	}
	for _, block := range blocks {
		if _, err := helmTemplate(t, namespace, string(block[1])); err != nil {
			t.Errorf("%v:\n%s", err, block[1])
		}
	}
}
