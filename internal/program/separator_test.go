// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package program

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnATerminalTheSeparatorOfTablesClearsTheScreen(t *testing.T) {
	if got := Separator(openTerminal(t)); got != "\x1b[H\x1b[2J" {
		t.Errorf("the separator is %q, want the codes that clear the screen", got)
	}
}

func TestOutsideOfATerminalTheSeparatorOfTablesIsAnEmptyLine(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/output")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	if got := Separator(file); got != "\n" {
		t.Errorf("in a file, the separator is %q, want an empty line", got)
	}
	if got := Separator(&strings.Builder{}); got != "\n" {
		t.Errorf("in a program, the separator is %q, want an empty line", got)
	}
}

// openTerminal returns the terminal of a new pseudoterminal: pts(4).
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	controller, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine has no pseudoterminals:", err)
	}

	t.Cleanup(func() { _ = controller.Close() })

	number, err := unix.IoctlGetInt(int(controller.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(controller.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}

	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = terminal.Close() })
	return terminal
}
