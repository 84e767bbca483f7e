// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shell is what the node's shell shows: tables and documents of the node API.
package shell

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/qos-nri/qos-nri-plugin/internal/columns"
)

// SystemDefault is how people see the empty class, which enforces nothing.
const SystemDefault = "<system default>"

// Unlimited is how people see the capacity 0.
const Unlimited = "unlimited"

// table is rows of equally many cells, the header first.
type table [][]string

// appendTo writes the columns aligned, two spaces apart, and no spaces at the ends of lines.
func (t table) appendTo(text *strings.Builder) {
	text.WriteString((&columns.Widths{}).Format(t, "", 2))
}

func classText(class string) string {
	if class == "" {
		return SystemDefault
	}
	return class
}

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
