// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestTheWalksOfTheArchitectureExist looks up the file and the functions of each step in docs/architecture.md, and counts the steps
// and the packages of each walk.
func TestTheWalksOfTheArchitectureExist(t *testing.T) {
	type size struct{ steps, packages int }
	limits := map[string]size{
		"From a class file to resctrl": {20, 8}, "Every stop of a start": {40, 10}, "From a capacity to the status of the Node": {12, 5},
	}
	step := regexp.MustCompile("(?m)^\\d+\\. `([^`]+\\.go)`, ([^:]+):")
	name := regexp.MustCompile("`([^`]+)`")

	page := read(t, "docs/architecture.md")
	for walk, most := range limits {
		_, section, found := strings.Cut(page, "\n## "+walk+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		steps := step.FindAllStringSubmatch(section, -1)
		if !found || len(steps) < 8 || len(steps) > most.steps {
			t.Errorf("the walk %q has %d steps, want 8 to %d", walk, len(steps), most.steps)
		}

		packages := map[string]bool{}
		for _, step := range steps {
			packages[path.Dir(step[1])] = true
			code := read(t, step[1])
			for _, function := range name.FindAllStringSubmatch(step[2], -1) {
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function[1] + `\b`).MatchString(code) {
					t.Errorf("%s has no function %s", step[1], function[1])
				}
			}
		}
		if len(packages) > most.packages {
			t.Errorf("the walk %q enters %d packages, want at most %d", walk, len(packages), most.packages)
		}
	}
}
