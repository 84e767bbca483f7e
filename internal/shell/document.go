// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package shell

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Format is how a command writes its answer.
type Format string

// Formats that people and programs can choose from.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats are all of them.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Document is a message of the node API for programs: its JSON mapping (protobuf.dev, "ProtoJSON"), with field names in
// camelCase, 64-bit numbers as strings, and fields that have their default, so that "class": "" is there to be read.
// YAML is the same in YAML, beginning with "---", so that a stream of documents is one too.
func Document(message proto.Message, format Format) (string, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	if format == YAML {
		data, err = yaml.JSONToYAML(data)
		return "---\n" + string(data), err
	}
	// protojson varies its spaces on purpose; people who compare two answers want them the same.
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	indented.WriteByte('\n')
	return indented.String(), nil
}
