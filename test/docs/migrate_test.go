// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// TestConvertDoesWhatTheMigrationShows converts the block after each command "kubectl qos convert … -f pod.yaml" of
// docs/migrate.md, and compares the result with the next block.
func TestConvertDoesWhatTheMigrationShows(t *testing.T) {
	all := blocksOf("docs/migrate.md", read(t, "docs/migrate.md"))
	count := 0
	for i, b := range all {
		flags, isConvert := strings.CutPrefix(b.text, "$ kubectl qos convert ")
		flags, isPod := strings.CutSuffix(flags, "-f pod.yaml\n")
		if !isConvert || !isPod {
			continue
		}
		count++

		results, err := convert.Convert([]convert.Input{{Name: "pod.yaml", Text: []byte(all[i+1].text)}}, convert.Options{Koordinator: flags == "--koordinator "})
		must(t, err)
		if diff := cmp.Diff(all[i+2].text, string(results[0].Text)); diff != "" {
			t.Errorf("(-page +convert):\n%s", diff)
		}
	}
	if count != 3 {
		t.Errorf("the page has %d commands that convert pod.yaml, want 3", count)
	}
}
