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
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(writeNotices(out, modules, strings.TrimSpace(goroot)), out.Close())
}

// sources returns the existing files that git tracks or would add. The paths are relative to `root`.
func sources(ctx context.Context, root string) ([]string, error) {
	list := func(options ...string) ([]string, error) {
		out, err := run(ctx, root, "git", append([]string{"ls-files", "-z"}, options...)...)
		return strings.FieldsFunc(out, func(c rune) bool { return c == 0 }), err
	}
	known, err := list("--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	deleted, err := list("--deleted")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(known, func(name string) bool { return slices.Contains(deleted, name) }), nil
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
