// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type module struct {
	path, version string
	// dir is the directory with the module's files.
	dir string
}

// licence is a licence that is compatible with Apache-2.0 and requires only its text in the distribution.
type licence struct {
	name string
	// phrases occur only in the text of this licence. They are in lower case, with one space between words.
	phrases []string
}

// allowed returns the permitted licences. BSD-3-Clause comes before BSD-2-Clause, because the text of BSD-3-Clause also
// has the phrases of BSD-2-Clause.
func allowed() []licence {
	return []licence{
		{"Apache-2.0", []string{"apache license", "version 2.0, january 2004"}},
		{"MIT", []string{"permission is hereby granted, free of charge, to any person obtaining a copy", "the software is provided \"as is\""}},
		{"BSD-3-Clause", []string{"redistribution and use in source and binary forms", "neither the name"}},
		{"BSD-2-Clause", []string{"redistribution and use in source and binary forms", "this list of conditions"}},
		{"ISC", []string{"permission to use, copy, modify, and/or distribute this software for any purpose"}},
	}
}

// refused returns phrases of licences with further conditions. A text with one of these phrases is always refused.
func refused() []string {
	return []string{"general public license", "mozilla public license", "server side public license", "business source license"}
}

// platforms returns the platforms of kubectl-qos, as GOOS/GOARCH. The programs of the nodes are built only for those
// with Linux.
func platforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}
}

// linked returns the third-party modules that are linked into the programs, on any of their platforms.
func linked(ctx context.Context, root string) ([]module, error) {
	var modules []module
	for _, platform := range platforms() {
		more, err := linkedOn(ctx, root, platform)
		if err != nil {
			return nil, err
		}
		modules = append(modules, more...)
	}

	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	return slices.Compact(modules), nil
}

// linkedOn returns the third-party modules that are linked into the programs of a platform.
func linkedOn(ctx context.Context, root, platform string) ([]module, error) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}`
	system, architecture, _ := strings.Cut(platform, "/")
	programs := "./cmd/kubectl-qos"
	if system == "linux" {
		programs = "./cmd/..."
	}

	out, err := run(ctx, root, "env", "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture, "go", "list", "-deps", "-f", format, programs)
	if err != nil {
		return nil, err
	}

	var modules []module
	for line := range strings.Lines(out) {
		if fields := strings.SplitN(strings.TrimSpace(line), " ", 3); len(fields) == 3 {
			modules = append(modules, module{path: fields[0], version: fields[1], dir: fields[2]})
		}
	}

	if len(modules) == 0 {
		return nil, fmt.Errorf("no module is linked into %s for %s: output of go list: %q", programs, platform, out)
	}

	return modules, nil
}

// checkLicences returns a problem for each module without a permitted licence.
func checkLicences(modules []module) []error {
	var problems []error
	for _, m := range modules {
		if err := checkLicence(m); err != nil {
			problems = append(problems, fmt.Errorf("%s@%s: %w", m.path, m.version, err))
		}
	}
	return problems
}

func checkLicence(m module) error {
	files, err := licenceFiles(m.dir)
	if err != nil {
		return err
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if classify(string(text)) == "" {
			return fmt.Errorf("%s is under none of the allowed licences: take another module, or add the licence to tools/house",
				filepath.Base(file))
		}
	}

	return nil
}

// licenceFiles returns the licence files at the top of a module, by name. A module without one is an error.
func licenceFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}

	var files []string
	for _, entry := range entries {
		name := strings.ToLower(entry.Name())
		stem, _, _ := strings.Cut(name, ".")
		isCode := strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".docs")
		if entry.Type().IsRegular() && !isCode && slices.Contains([]string{"license", "licence", "copying"}, stem) {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}

	if len(files) == 0 {
		return nil, fmt.Errorf("has no licence file in %s", dir)
	}
	return files, nil
}

// classify returns the name of the permitted licence that a text contains, or "".
func classify(text string) string {
	text = strings.Join(strings.Fields(strings.ToLower(text)), " ")
	text = strings.NewReplacer("“", `"`, "”", `"`).Replace(text)
	has := func(phrase string) bool { return strings.Contains(text, phrase) }
	if slices.ContainsFunc(refused(), has) {
		return ""
	}
	for _, l := range allowed() {
		if !slices.ContainsFunc(l.phrases, func(p string) bool { return !has(p) }) {
			return l.name
		}
	}
	return ""
}
