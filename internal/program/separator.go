// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Separator returns the text to print before a table is printed again. On a terminal, this text clears the screen.
// Otherwise, it is an empty line.
func Separator(out io.Writer) string {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return "\x1b[H\x1b[2J"
	}
	return "\n"
}
