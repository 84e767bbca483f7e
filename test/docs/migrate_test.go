// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/convert"
)

// TestCommandsOfTheMigrationDoWhatThePageShows runs each sed command of docs/migrate.md on the block after it, and
// compares the output with the next block.
func TestCommandsOfTheMigrationDoWhatThePageShows(t *testing.T) {
	all := blocksOf("docs/migrate.md", read(t, "docs/migrate.md"))
	count := 0
	for i, b := range all {
		command, is := strings.CutPrefix(b.text, "$ sed ")
		if !is {
			continue
		}
		count++
		directory := t.TempDir()
		if err := os.WriteFile(filepath.Join(directory, "pod.yaml"), []byte(all[i+1].text), 0o600); err != nil {
			t.Fatal(err)
		}

		var errors bytes.Buffer
		sed := exec.CommandContext(t.Context(), "bash", "-c", "sed "+command)
		sed.Dir, sed.Stderr = directory, &errors
		got, err := sed.Output()
		if diff := cmp.Diff(all[i+2].text, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v %s (-page +sed):\n%s", b.text, err, &errors, diff)
		}
	}

	if count != 1 {
		t.Errorf("the page has %d commands of sed, want 1", count)
	}
}

// TestConvertDoesWhatTheMigrationShows converts the block after the command "kubectl qos convert -f pod.yaml" of
// docs/migrate.md, and compares the result with the next block.
func TestConvertDoesWhatTheMigrationShows(t *testing.T) {
	all := blocksOf("docs/migrate.md", read(t, "docs/migrate.md"))
	i := slices.IndexFunc(all, func(b block) bool { return strings.HasPrefix(b.text, "$ kubectl qos convert -f pod.yaml") })
	if i < 0 {
		t.Fatal("the page has no command that converts pod.yaml")
	}
	results, err := convert.Convert([]convert.Input{{Name: "pod.yaml", Text: []byte(all[i+1].text)}}, convert.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[i+2].text, string(results[0].Text)); diff != "" {
		t.Errorf("(-page +convert):\n%s", diff)
	}
}
