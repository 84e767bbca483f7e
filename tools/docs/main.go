// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs builds the site of the documentation from the Markdown files of the checkout, and checks all links
// within the site. The Markdown files and their links also work on a forge such as GitHub.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the checkout")
	output := flag.String("output", "", "the directory of the site; everything in it is replaced")
	source := flag.String("source", "https://github.com/qos-nri/qos-nri-plugin", "the repository, for links to files that are no pages")
	flag.Parse()
	if *output == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*root, *output, *source, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(root, output, source string, out io.Writer) error {
	files, problems := build(os.DirFS(root), source)
	if len(problems) > 0 {
		return errors.Join(problems...)
	}

	if err := write(output, files); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d files, and all links between them: OK; open %s\n", len(files), filepath.Join(output, "index.html"))
	return nil
}

// write replaces the directory by files.
func write(directory string, files map[string][]byte) error {
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	for name, data := range files {
		file := filepath.Join(directory, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o644); err != nil { //nolint:gosec // everyone may read the site
			return err
		}
	}
	return nil
}
