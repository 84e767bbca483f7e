// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// programs builds the programs of this project, and returns their directory. It uses the flags of "make test", so that Go finds the
// packages in its cache.
func programs(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	build := child.Command(t, "go", "build", buildFlags, "-tags", tag, "-buildvcs=false", "-ldflags=-s -w", "-o", directory+"/", "./cmd/...")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return directory
}

// commands returns the commands of a console block: each line after a prompt, without its comment, and each part of a
// pipe or list.
func commands(b block) (all [][]string) {
	text := strings.ReplaceAll(b.text, "\\\n", " ")
	for _, line := range regexp.MustCompile(`(?m)^[$#] (.*)$`).FindAllStringSubmatch(text, -1) {
		line, _, _ := strings.Cut(line[1], " #")
		for _, command := range regexp.MustCompile(` \| | && | -- |<\(|\)`).Split(line, -1) {
			if words := strings.Fields(command); len(words) > 0 {
				all = append(all, words)
			}
		}
	}
	return all
}

// TestCommandsOfThePagesExist checks the commands in console blocks, the flags that the pages list, and docs/commands.md.
func TestCommandsOfThePagesExist(t *testing.T) {
	built := programs(t)
	t.Run("commands", func(t *testing.T) { checkCommands(t, built) })
	t.Run("flags", func(t *testing.T) { checkFlags(t, built) })
	t.Run("page", func(t *testing.T) { checkCommandsPage(t, built) })
}

// checkCommands reads all console blocks. It checks the make targets, the files of this repository, and the commands and
// flags of this project's programs that the blocks name. It adds --help to the end of each command. With --help, a program does
// nothing, but still refuses unknown commands and flags.
func checkCommands(t *testing.T, built string) {
	t.Helper()
	makefile := read(t, "Makefile")
	count := map[string]int{}
	for _, b := range blocks(t) {
		if b.language != "console" {
			continue
		}
		for _, command := range commands(b) {
			kind, err := checkCommand(t, built, makefile, command)
			if err != nil {
				t.Errorf("%s: %s: %v", b.page, strings.Join(command, " "), err)
			}
			count[kind]++
		}
	}

	for kind, least := range map[string]int{"make": 5, "qos-nri-plugin": 20, "kubectl-qos": 10} {
		if count[kind] < least {
			t.Errorf("the pages have %d commands of %s", count[kind], kind)
		}
	}
}

// checkCommand returns the program of a command, if it is make or a program of this project.
func checkCommand(t *testing.T, built, makefile string, words []string) (string, error) {
	t.Helper()
	own := regexp.MustCompile(`^(deploy|config|scripts|test|docs|tools)/`)
	for _, word := range words {
		if _, err := os.Stat(filepath.Join(repository, word)); own.MatchString(word) && err != nil {
			return "", err
		}
	}

	if len(words) > 1 && words[0] == "kubectl" && words[1] == "qos" {
		words = append([]string{"kubectl-qos"}, words[2:]...)
	}

	name := filepath.Base(words[0])
	switch name {
	case "make":
		for _, word := range words[1:] {
			target := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(word) + `:`)
			if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") && !target.MatchString(makefile) {
				return name, fmt.Errorf("there is no target %s", word)
			}
		}
		return name, nil
	case "qos-nri-plugin", "qos-kubelet-shim", "qos-dra-driver", "qos-storage", "kubectl-qos":
		out, err := child.Command(t, filepath.Join(built, name), append(words[1:], "--help")...).CombinedOutput()
		if err != nil {
			return name, fmt.Errorf("%w: %s", err, out)
		}
		usage := "\n  " + strings.Replace(name, "kubectl-", "kubectl ", 1) + " " // followed by the command
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") && !strings.Contains(string(out), usage+words[1]) {
			return name, fmt.Errorf("there is no command %s", words[1])
		}
		return name, nil
	}

	return "", nil
}

// checkFlags compares the flags and defaults of the programs with the sections of the pages that list them.
func checkFlags(t *testing.T, built string) {
	t.Helper()
	for program, place := range map[string]struct{ page, heading string }{
		"qos-nri-plugin":   {"docs/plugin.md", "\n## Flags\n"},
		"qos-kubelet-shim": {"docs/shim.md", "\n## Flags\n"},
		"qos-dra-driver":   {"docs/dra.md", "\n## Flags\n"},
		"qos-storage":      {"docs/volumes.md", "\n### Flags of qos-storage\n"},

		"qos-storage resize": {"docs/storage/kep-0661.md", "\n## Flags of qos-storage resize\n"},

		"qos-storage defaults": {"docs/storage/kep-3333.md", "\n## Flags of qos-storage defaults\n"},
	} {
		words := append(strings.Fields(program), "--help")
		help, err := child.Command(t, filepath.Join(built, words[0]), words[1:]...).Output()
		must(t, err)
		// A false boolean has no default in the help, and the default of --node-name is the name of this machine.
		exported := flagsIn(string(help), `(?m)^ +(?:-\w, )?--([\w-]+)(?: .*\(default "?\[?([^"\])]*)\]?"?\))?`)
		delete(exported, "help")
		if _, ok := exported["node-name"]; ok {
			exported["node-name"] = "the host's name"
		}

		_, text, _ := strings.Cut(read(t, place.page), place.heading)
		text, _, _ = strings.Cut(text, "\n## ")
		documented := flagsIn(regexp.MustCompile(`\s+`).ReplaceAllString(text, " "), "(?:- |\\. )`--([\\w-]+)`(?: \\(`?([^`)]*)`?\\))?:")
		for name, value := range documented {
			if value == "false" {
				documented[name] = ""
			}
		}
		if diff := cmp.Diff(exported, documented); diff != "" {
			t.Errorf("%s: flags of %s (-program +page):\n%s", place.page, program, diff)
		}
	}
}

// flagsIn returns the default of each flag that an expression finds.
func flagsIn(text, expression string) map[string]string {
	flags := map[string]string{}
	for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		flags[found[1]] = found[2]
	}
	return flags
}
