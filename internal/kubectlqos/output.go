// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// Formats that tables of our own can be written in; "" is the table.
const (
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
)

// documents is the flag --output of commands whose documents are no objects of the Kubernetes API.
type documents struct{ format string }

func (d *documents) addFlag(cmd *cobra.Command) {
	formats := []string{formatWide, formatJSON, formatYAML}
	cmd.Flags().StringVarP(&d.format, "output", "o", "", "Output format. One of: ("+strings.Join(formats, ", ")+").")
	completeFlag(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func (d *documents) check(cmd *cobra.Command) error {
	if formats := []string{"", formatWide, formatJSON, formatYAML}; !slices.Contains(formats, d.format) {
		return program.UsageError(cmd, fmt.Errorf("--output %q is not one of %s", d.format, strings.Join(formats[1:], ", ")))
	}
	return nil
}

func (d *documents) isTable() bool { return d.format == "" || d.format == formatWide }

// listed is a document: what is in a list.
type listed[T any] struct {
	Items []T `json:"items"`
}

// documentOf writes a list as one document. YAML begins with "---", so that a stream of documents is one too.
func documentOf[T any](items []T, format string) (string, error) {
	if items == nil {
		items = []T{}
	}
	data, err := json.MarshalIndent(listed[T]{items}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write %s: %w", format, err)
	}
	if format == formatJSON {
		return string(data) + "\n", nil
	}
	data, err = yaml.JSONToYAML(data)
	return "---\n" + string(data), err
}
