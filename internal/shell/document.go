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

// These are the values of the flag --output.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists all formats.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Document formats a message of the node API with the JSON mapping of protobuf (protobuf.dev, "ProtoJSON"). Names of
// fields are in camelCase, 64-bit numbers are strings, and default values are included. Every YAML document begins with
// "---", because a watch prints several documents.
func Document(message proto.Message, format Format) (string, error) {
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(message)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	if format == YAML {
		data, err = yaml.JSONToYAML(data)
		return "---\n" + string(data), err
	}

	// protojson varies its white space on purpose. The next lines normalize it, so that equal messages give equal documents.
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	indented.WriteByte('\n')
	return indented.String(), nil
}
