// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command house checks what no linter checks: the licence headers and lengths of source files, the number of methods of types, the width of
// Markdown files, and the licences of the modules that are linked into the programs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the checkout")
	notices := flag.String("notices", "", "write the licences of all linked modules and of Go into this file, and check nothing")
	flag.Parse()
	do := func(ctx context.Context) error { return check(ctx, *root, os.Stdout) }
	if *notices != "" {
		do = func(ctx context.Context) error { return collect(ctx, *root, *notices) }
	}
	if err := do(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(ctx context.Context, root string, out io.Writer) error {
	files, err := sources(ctx, root)
	if err != nil {
		return err
	}

	modules, err := linked(ctx, root)
	if err != nil {
		return err
	}

	tree := os.DirFS(root)
	problems := slices.Concat(checkFiles(tree, files), checkMethods(tree, files), checkLicences(modules))
	if len(problems) > 0 {
		return errors.Join(problems...)
	}

	fmt.Fprintf(out, "%d files and the licences of %d modules: OK\n", len(files), len(modules))
	return nil
}

// collect writes the licences of all linked modules into a file.
func collect(ctx context.Context, root, file string) error {
	modules, err := linked(ctx, root)
	if err != nil {
		return err
	}
	goroot, err := run(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	return saveNotices(file, modules, strings.TrimSpace(goroot))
}

// sources returns the existing files that git tracks or would add. The paths are relative to `root`.
func sources(ctx context.Context, root string) ([]string, error) {
	known, err := run(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}

	deleted, err := run(ctx, root, "git", "ls-files", "-z", "--deleted")
	if err != nil {
		return nil, err
	}

	gone := map[string]bool{"": true}
	for name := range strings.SplitSeq(deleted, "\x00") {
		gone[name] = true
	}

	var files []string
	for name := range strings.SplitSeq(known, "\x00") {
		if !gone[name] {
			gone[name] = true // a file with a merge conflict is listed more than once
			files = append(files, name)
		}
	}

	return files, nil
}

// run returns the standard output of a command.
func run(ctx context.Context, dir string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), nil
}
