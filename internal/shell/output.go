// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell formats the answers of the node API as tables and documents, for commands in a shell on the node.
package shell

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

// The output has these texts in place of values that are empty or 0.
const (
	// SystemDefault stands for the empty class, which enforces nothing.
	SystemDefault = "<system default>"
	// Unlimited stands for the capacity 0.
	Unlimited = "unlimited"
	// wholePod stands for the pod as a whole, in the column of container names.
	wholePod = "<pod>"
)

// table has rows with the same number of cells. The first row is the header.
type table [][]string

// appendTo appends the table to `text`. It first appends an empty line if `text` is not empty. It appends nothing if the
// table has no rows below the header.
func (t table) appendTo(text *strings.Builder) {
	if len(t) < 2 {
		return
	}
	if text.Len() > 0 {
		text.WriteByte('\n')
	}

	text.WriteString(tables.Align(t, "", 0, 2))
}

func classText(class string) string { return cmp.Or(class, SystemDefault) }

func containerText(name string) string { return cmp.Or(name, wholePod) }

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func timeText(t *timestamppb.Timestamp) string {
	if t == nil {
		return "never"
	}
	return t.AsTime().UTC().Format(time.RFC3339)
}

// These are the values of the flag --output.
const (
	Table = "table"
	JSON  = "json"
	YAML  = "yaml"
)

// Formats lists all formats.
func Formats() []string { return []string{Table, JSON, YAML} }

// Document formats a message of the node API with the JSON mapping of protobuf (protobuf.dev, "ProtoJSON"). Names of
// fields are in camelCase, 64-bit numbers are strings, and default values are included. Every YAML document begins with
// "---", because a watch prints several documents.
func Document(message proto.Message, format string) (string, error) {
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
