// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Problems is the error of a check. Its value is the number of problems that the check printed.
type Problems int

func (n Problems) Error() string {
	if n == 1 {
		return "there is 1 problem"
	}
	return fmt.Sprintf("there are %d problems", int(n))
}

// PrintProblems prints a line for each problem of a check, and returns the number of problems.
func PrintProblems(out io.Writer, err error) int {
	problems := classes.SplitErrors(err)
	for _, problem := range problems {
		fmt.Fprintln(out, program.OneLine(problem.Error()))
	}
	return len(problems)
}

// PrintSummary prints a summary of valid class files.
func PrintSummary(out io.Writer, files classes.FileSet, offline bool) {
	offered := 0
	for _, r := range files.Config.Resources {
		offered += len(r.Classes)
	}
	text := fmt.Sprintf("%s, %s, %s: OK", count(len(files.Files), "file", "files"),
		count(len(files.Config.Resources), "resource", "resources"), count(offered, "class", "classes"))
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
