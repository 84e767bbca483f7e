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
)

// maxLines is the longest that a Go file may be: one longer than this is about more than one thing.
const maxLines = 400

// generated is how Go marks files that a program wrote: https://go.dev/s/generatedcode.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// checkFiles gives what is wrong with the headers and lengths of files in tree.
func checkFiles(tree fs.FS, files []string) []error {
	var problems []error
	for _, name := range files {
		mark := comment(path.Ext(name))
		if mark == "" {
			continue
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if !hasHeader(data, mark) {
			problems = append(problems, fmt.Errorf("%s: does not begin with the header: \"%s Copyright The qos-nri-plugin Authors.\", "+
				"\"%s SPDX-License-Identifier: Apache-2.0\"", name, mark, mark))
		}
		if lines := bytes.Count(data, []byte("\n")); path.Ext(name) == ".go" && lines > maxLines && !generated.Match(data) {
			problems = append(problems, fmt.Errorf("%s: has %d lines, more than %d: split it by what its parts are about",
				name, lines, maxLines))
		}
	}
	return problems
}

// comment is how a line of comment begins in files that need a header, by the name's extension; "" for other files.
func comment(extension string) string {
	switch extension {
	case ".go", ".proto":
		return "//"
	case ".sh", ".yml":
		return "#"
	}
	return ""
}

// hasHeader says whether the two lines of the header come first, after a line that names the interpreter, if there is one.
func hasHeader(data []byte, mark string) bool {
	text := string(data)
	if strings.HasPrefix(text, "#!") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return strings.HasPrefix(text, mark+" Copyright The qos-nri-plugin Authors.\n"+mark+" SPDX-License-Identifier: Apache-2.0\n")
}
