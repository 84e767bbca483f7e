// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// TestTheMapOfTheTestsNamesEachDirectory compares the first columns of the tables in test/README.md with the directories.
func TestTheMapOfTheTestsNamesEachDirectory(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(repository, "test"))
	must(t, err)

	var want, got []string
	for _, entry := range entries {
		if entry.IsDir() {
			want = append(want, entry.Name())
		}
	}

	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read(t, "test/README.md"), -1) {
		got = append(got, row[1])
	}

	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("directories of test/ in test/README.md (-want +got):\n%s", diff)
	}
}

func TestDependenciesOfEachModuleAreUpdated(t *testing.T) {
	var config struct {
		Updates []struct{ Directories []string }
	}
	must(t, yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config))

	list := child.Command(t, "git", "-C", repository, "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod")
	files, err := list.Output()
	if err != nil {
		t.Skipf("not a checkout of git: %v", err)
	}

	var want []string
	for file := range strings.FieldsSeq(string(files)) {
		want = append(want, path.Join("/", path.Dir(file)))
	}

	slices.Sort(want)
	if diff := cmp.Diff(want, config.Updates[0].Directories); diff != "" {
		t.Errorf("modules in .github/dependabot.yml (-want +got):\n%s", diff)
	}
}

// workflow is a workflow of the forge.
type workflow struct {
	Jobs map[string]struct {
		Steps []struct{ Uses, Run string }
	}
}

// TestWorkflowsNeedOnlyTheRepository checks that the targets of make in the workflows exist, and that the workflows name no path
// outside of the repository and no action, which others could change.
func TestWorkflowsNeedOnlyTheRepository(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repository, ".github/workflows/*.yml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("the workflows are %q (%v)", files, err)
	}

	makefile := read(t, "Makefile")
	for _, file := range files {
		name := filepath.Join(".github/workflows", filepath.Base(file))
		var w workflow
		must(t, yaml.Unmarshal([]byte(read(t, name)), &w))
		for job, steps := range w.Jobs {
			for _, step := range steps.Steps {
				if step.Uses != "" || strings.Contains(step.Run, "../") {
					t.Errorf("%s: job %s uses %q and runs %q", name, job, step.Uses, step.Run)
				}
				for _, target := range targetsOf(step.Run) {
					if !strings.Contains(makefile, "\n"+target+":") {
						t.Errorf("%s: job %s makes %s, which is no target", name, job, target)
					}
				}
			}
		}
	}
}

// targetsOf returns the targets of make in a script.
func targetsOf(script string) (all []string) {
	for _, command := range regexp.MustCompile(`(?m)^\s*make ([^|\n]*)`).FindAllStringSubmatch(script, -1) {
		for word := range strings.FieldsSeq(strings.TrimPrefix(command[1], "-C checkout")) {
			if !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
				all = append(all, word)
			}
		}
	}
	return all
}
