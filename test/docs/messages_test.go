// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// TestTheMessagesPageHasAllMessages compares docs/messages.md with the node API. Names, types and numbers come from the
// descriptors in the generated code, and the descriptions from the comments in qos.proto.
func TestTheMessagesPageHasAllMessages(t *testing.T) {
	file := qosv1alpha1.File_qos_v1alpha1_qos_proto
	comments := commentsOf(read(t, "api/qos/v1alpha1/qos.proto"))
	var want strings.Builder

	service := file.Services().Get(0)
	want.WriteString("## Methods of " + string(service.Name()) + "\n\n| Method | Request | Response | Meaning |\n|---|---|---|---|\n")
	for i := range service.Methods().Len() {
		method := service.Methods().Get(i)
		response := link(method.Output())
		if method.IsStreamingServer() {
			response = "stream of " + response
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", method.Name(), link(method.Input()), response, comments.of(t, service, method))
	}

	want.WriteString("\n## Messages\n")
	for i := range file.Messages().Len() {
		writeMessage(t, &want, comments, file.Messages().Get(i))
	}

	want.WriteString("\n## Enumerations\n")
	for i := range file.Enums().Len() {
		writeEnum(t, &want, comments, file.Enums().Get(i))
	}

	checkGenerated(t, "docs/messages.md", want.String())
}

func writeMessage(t *testing.T, out *strings.Builder, comments protoComments, message protoreflect.MessageDescriptor) {
	t.Helper()
	fmt.Fprintf(out, "\n### %s\n\n%s\n", message.Name(), comments.of(t, message))
	for i := range message.Fields().Len() {
		if i == 0 {
			out.WriteString("\n| Field | Number | Type | Meaning |\n|---|--:|---|---|\n")
		}
		f := message.Fields().Get(i)
		fmt.Fprintf(out, "| `%s` | %d | %s | %s |\n", f.Name(), f.Number(), typeOf(f), comments.of(t, message, f))
	}
}

func writeEnum(t *testing.T, out *strings.Builder, comments protoComments, enum protoreflect.EnumDescriptor) {
	t.Helper()
	fmt.Fprintf(out, "\n### %s\n\n%s\n\n| Value | Number | Meaning |\n|---|--:|---|\n", enum.Name(), comments.of(t, enum))
	for i := range enum.Values().Len() {
		value := enum.Values().Get(i)
		fmt.Fprintf(out, "| `%s` | %d | %s |\n", value.Name(), value.Number(), comments.of(t, enum, value))
	}
}

// typeOf returns the type of a field, with a link if the page describes it.
func typeOf(field protoreflect.FieldDescriptor) string {
	text := field.Kind().String()
	switch {
	case field.Message() != nil:
		text = link(field.Message())
	case field.Enum() != nil:
		text = link(field.Enum())
	}
	if field.IsList() {
		text = "list of " + text
	}
	return text
}

// link returns the name of a message or an enumeration. It is a link to its section, if the node API defines it.
func link(of protoreflect.Descriptor) string {
	if of.ParentFile() != qosv1alpha1.File_qos_v1alpha1_qos_proto {
		return string(of.Name())
	}
	return fmt.Sprintf("[%s](#%s)", of.Name(), strings.ToLower(string(of.Name())))
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

// of returns the comment of the last descriptor in path. The earlier descriptors in path contain it.
func (c protoComments) of(t *testing.T, path ...protoreflect.Descriptor) string {
	t.Helper()
	var names []string
	for _, part := range path {
		names = append(names, string(part.Name()))
	}
	comment, found := c[strings.Join(names, ".")]
	if !found || comment == "" {
		t.Errorf("qos.proto has no comment above %s", strings.Join(names, "."))
	}
	return cell(comment)
}
