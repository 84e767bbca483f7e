// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Separator returns what to print between two tables that show the same at different times: on a terminal the code that clears it, and
// otherwise an empty line.
func Separator(out io.Writer) string {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}
