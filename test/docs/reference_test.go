// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/child"
)

// checkCommandsPage compares docs/commands.md with the help of the programs that have several commands.
func checkCommandsPage(t *testing.T, built string) {
	t.Helper()
	var want strings.Builder
	for _, program := range []string{"kubectl-qos", "qos-nri-plugin"} {
		fmt.Fprintf(&want, "\n## %s\n", strings.Replace(program, "kubectl-", "kubectl ", 1))
		if program == "kubectl-qos" {
			want.WriteString("\nEvery command has kubectl's flags:\n" + flagTable(helpOf(t, built, program)))
		}
		commandSections(t, &want, built, program)
	}
	checkGenerated(t, "docs/commands.md", want.String())
}

// helpOf returns the help of a command. It sets HOME, so that the help does not depend on the user who runs the test.
func helpOf(t *testing.T, built, program string, words ...string) string {
	t.Helper()
	command := child.Command(t, filepath.Join(built, program), append(words, "--help")...)
	command.Env = append(os.Environ(), "HOME=~", "KUBECACHEDIR=")
	help, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(words, " "), err, help)
	}
	return string(help) + "\n"
}

// commandSections writes a section for each subcommand of a command. It leaves out the command "run", because another
// test compares the flags of "run" with docs/plugin.md.
func commandSections(t *testing.T, out *strings.Builder, built, program string, above ...string) {
	t.Helper()
	list := helpSection(helpOf(t, built, program, above...), "Available Commands")
	for _, found := range regexp.MustCompile(`(?m)^  (\S+) +(.*)$`).FindAllStringSubmatch(list, -1) {
		words := slices.Concat(above, []string{found[1]})
		if name := strings.Join(words, " "); name == "run" || name == "help" || (len(above) > 0 && above[0] == "completion") {
			continue
		}

		help := helpOf(t, built, program, words...)
		usage := strings.TrimSpace(strings.Split(helpSection(help, "Usage"), "\n")[0])
		fmt.Fprintf(out, "\n### %s\n\n`%s`\n\n%s\n", title(program, words), usage, sentence(cell(found[2])))
		out.WriteString(flagTable(help))
		commandSections(t, out, built, program, words...)
	}
}

// title returns the heading of a command. It begins with the program's name, because both programs have commands with the same names.
func title(program string, words []string) string {
	return strings.Replace(program, "kubectl-", "kubectl ", 1) + " " + strings.Join(words, " ")
}

// helpSection returns the lines below a heading of a help text.
func helpSection(help, heading string) string {
	found := regexp.MustCompile(`(?s)(?:\A|\n)` + heading + `:\n(.*?)\n(?:\n|\z)`).FindStringSubmatch(help)
	if found == nil {
		return ""
	}
	return found[1]
}

// flagTable returns a table with the flags in a help text, or nothing if it has none.
func flagTable(help string) string {
	line := regexp.MustCompile(`(?m)^ +((?:-\w, )?--[\w-]+)(?: (\w+))?(?:\[=\S+\])?   +(.*?)(?: \(default (.*)\))?$`)
	var rows strings.Builder
	for _, found := range line.FindAllStringSubmatch(helpSection(help, "Flags"), -1) {
		if strings.HasSuffix(found[1], "--help") {
			continue
		}
		kind, standard := found[2], strings.Trim(found[4], `"`)
		if kind == "" {
			kind = "bool"
		}
		if standard != "" {
			standard = "`" + standard + "`"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s |\n", found[1], kind, standard, sentence(cell(found[3])))
	}

	if rows.Len() == 0 {
		return ""
	}

	return "\n| Flag | Type | Default | Meaning |\n|---|---|---|---|\n" + rows.String()
}
