// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classcheck says in words what checking class files has found.
package classcheck

import (
	"fmt"
	"io"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Problems is the error of a check that found some. What they are has been printed.
type Problems int

func (n Problems) Error() string {
	if n == 1 {
		return "there is 1 problem"
	}
	return fmt.Sprintf("there are %d problems", int(n))
}

// PrintProblems prints a line for each problem of a check and says how many there are; none of nil.
func PrintProblems(out io.Writer, err error) int {
	if err == nil {
		return 0
	}
	problems := classes.SplitErrors(err)
	for _, problem := range problems {
		fmt.Fprintln(out, OneLine(problem.Error()))
	}
	return len(problems)
}

// PrintSummary says what was read without problems; offline, that no machine was asked.
func PrintSummary(out io.Writer, source classes.FileSet, offline bool) {
	offered := 0
	for _, r := range source.Config.Resources {
		offered += len(r.Classes)
	}
	text := fmt.Sprintf("%s, %s, %s: OK", count(len(source.Files), "file", "files"),
		count(len(source.Config.Resources), "resource", "resources"), count(offered, "class", "classes"))
	if offline {
		text += " (not checked against this machine)"
	}
	fmt.Fprintln(out, text)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// OneLine keeps a text in one line.
func OneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }
