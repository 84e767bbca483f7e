// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if count != 2 {
		t.Errorf("the page has %d commands of sed, want 2", count)
	}
}
