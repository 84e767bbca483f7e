// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// maxMethods is the maximum number of methods of a type.
const maxMethods = 40

// checkMethods checks the number of methods of each type of the programs and packages. It leaves out tests and generated code.
func checkMethods(tree fs.FS, files []string) (problems []error) {
	methods := map[string]int{}
	for _, name := range files {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			continue
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			continue // checkFiles reports it
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if ast.IsGenerated(file) {
			continue
		}
		for _, declaration := range file.Decls {
			if function, is := declaration.(*ast.FuncDecl); is && function.Recv != nil {
				methods[path.Dir(name)+": type "+receiver(function.Recv.List[0].Type)]++
			}
		}
	}

	for name, count := range methods {
		if count > maxMethods {
			problems = append(problems, fmt.Errorf("%s has %d methods, more than %d: split it by what the methods are for", name, count, maxMethods))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return problems
}

// receiver returns the name of the type of a receiver, without its type parameters.
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
