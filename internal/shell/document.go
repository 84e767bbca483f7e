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

// Format is the value of the flag --output.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists all formats.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Document formats a message of the node API by its JSON mapping (protobuf.dev, "ProtoJSON"): field names in camelCase, 64-bit
// numbers as strings, default values included. YAML documents begin with "---", as a watch prints several.
func Document(message proto.Message, format Format) (string, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	if format == YAML {
		data, err = yaml.JSONToYAML(data)
		return "---\n" + string(data), err
	}

	// protojson varies its spaces on purpose; equal messages give equal documents here.
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	indented.WriteByte('\n')
	return indented.String(), nil
}
