// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// TestEachPartOfTheNodeAPIHasAComment looks up the comment of each method, message, field, enumeration and value in qos.proto, which is
// the reference of the node API.
func TestEachPartOfTheNodeAPIHasAComment(t *testing.T) {
	file := qosv1alpha1.File_qos_v1alpha1_qos_proto
	comments := commentsOf(read(t, "api/qos/v1alpha1/qos.proto"))

	service := file.Services().Get(0)
	for i := range service.Methods().Len() {
		comments.check(t, service, service.Methods().Get(i))
	}
	for i := range file.Messages().Len() {
		message := file.Messages().Get(i)
		comments.check(t, message)
		for i := range message.Fields().Len() {
			comments.check(t, message, message.Fields().Get(i))
		}
	}
	for i := range file.Enums().Len() {
		enum := file.Enums().Get(i)
		comments.check(t, enum)
		for i := range enum.Values().Len() {
			comments.check(t, enum, enum.Values().Get(i))
		}
	}
}

// protoComments are the comments in a .proto file, by the names of what they describe, e.g. "Status" and "Status.healthy".
type protoComments map[string]string

// commentsOf returns the comments directly above messages, enumerations, services, methods, fields and values.
func commentsOf(text string) protoComments {
	found := protoComments{}
	above, comment := "", ""
	declaration := regexp.MustCompile(`^(?:message|enum|service|rpc) (\w+)|(\w+) = \d+;$`)
	for line := range strings.Lines(text) {
		line := strings.TrimSuffix(line, "\n")
		words := strings.TrimSpace(line)
		if text, is := strings.CutPrefix(words, "//"); is {
			comment += " " + strings.TrimSpace(text)
			continue
		}

		if name := declaration.FindStringSubmatch(words); name != nil && line == words {
			above = name[1]
			found[above] = comment
		} else if name != nil {
			found[above+"."+name[1]+name[2]] = comment
		}
		comment = ""
	}

	return found
}

// check reports an error if the last descriptor in `path` has no comment. The earlier descriptors in `path` contain it.
func (c protoComments) check(t *testing.T, path ...protoreflect.Descriptor) {
	t.Helper()
	var names []string
	for _, part := range path {
		names = append(names, string(part.Name()))
	}
	if c[strings.Join(names, ".")] == "" {
		t.Errorf("qos.proto has no comment above %s", strings.Join(names, "."))
	}
}

// TestRemediesWithManifestsAlsoNameHelm reads the messages of all programs. A user of the chart has no directory deploy/.
func TestRemediesWithManifestsAlsoNameHelm(t *testing.T) {
	manifests := regexp.MustCompile(`\bdeploy/(kubernetes|storage|policies|uninstall|scheduler)`)
	found := 0
	for _, file := range goFiles(t, false, "cmd", "internal", "pkg") {
		for _, text := range messagesIn(t, file) {
			if !manifests.MatchString(text) {
				continue
			}
			if found++; !strings.Contains(strings.ToLower(text), "helm") {
				t.Errorf("a message names manifests, and not what to do with the Helm chart: %s", text)
			}
		}
	}
	if found == 0 {
		t.Error("no message names manifests")
	}
}

// messagesIn returns the strings in a Go file. Strings that an expression joins are one.
func messagesIn(t *testing.T, name string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), 0)
	must(t, err)
	ast.Inspect(file, func(node ast.Node) bool {
		_, isSum := node.(*ast.BinaryExpr)
		literal, isLiteral := node.(*ast.BasicLit)
		if isSum || isLiteral && literal.Kind == token.STRING {
			texts = append(texts, joined(node))
		}
		return !isSum
	})
	return texts
}

// joined returns the strings in an expression, one after the other.
func joined(expression ast.Node) (text string) {
	ast.Inspect(expression, func(node ast.Node) bool {
		if literal, is := node.(*ast.BasicLit); is && literal.Kind == token.STRING {
			part, _ := strconv.Unquote(literal.Value)
			text += part
		}
		return true
	})
	return text
}
