// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxLines is the maximum length of a Go file.
const maxLines = 400

// maxColumns is the maximum length of a line of prose in a Markdown file.
const maxColumns = 100

// generated matches Go's mark of generated files: https://go.dev/s/generatedcode.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// checkFiles checks headers and lengths of the files in tree.
func checkFiles(tree fs.FS, files []string) []error {
	var problems []error
	for _, name := range files {
		mark := comment(path.Ext(name))
		if mark == "" && path.Ext(name) != ".md" {
			continue
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if mark == "" {
			problems = append(problems, checkProse(name, string(data))...)
			continue
		}
		if !hasHeader(data, mark) {
			problems = append(problems, fmt.Errorf("%s: does not begin with the header: \"%s Copyright The qos-nri-plugin Authors.\", "+
				"\"%s SPDX-License-Identifier: Apache-2.0\"", name, mark, mark))
		}
		if lines := bytes.Count(data, []byte("\n")); path.Ext(name) == ".go" && lines > maxLines && !generated.Match(data) {
			problems = append(problems, fmt.Errorf("%s: has %d lines, more than %d: split it by topic",
				name, lines, maxLines))
		}
	}

	return problems
}

// comment returns the comment marker of files that need a header, by extension, and "" for other files.
func comment(extension string) string {
	switch extension {
	case ".go", ".proto":
		return "//"
	case ".sh", ".yml":
		return "#"
	}
	return ""
}

// hasHeader reports whether a file begins with the two lines of the header, after the interpreter line if it has one.
func hasHeader(data []byte, mark string) bool {
	text := string(data)
	if strings.HasPrefix(text, "#!") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.HasPrefix(text, mark+" Copyright The qos-nri-plugin Authors.\n"+mark+" SPDX-License-Identifier: Apache-2.0\n")
}

// checkProse checks the length of lines in a Markdown file. Tables, code and the addresses of links cannot be wrapped.
func checkProse(name, text string) (problems []error) {
	inCode, number := false, 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		inCode = inCode != isFence
		if inCode || unwrapped.MatchString(line) || utf8.RuneCountInString(line) <= maxColumns {
			continue
		}
		problems = append(problems, fmt.Errorf("%s:%d: is longer than %d columns: wrap the paragraph", name, number, maxColumns))
	}
	return problems
}

// unwrapped matches a row of a table, a line of indented code, and the address of a link.
var unwrapped = regexp.MustCompile(`^(\||    |\[[^]]+\]:)`)
