// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

const (
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
)

// output is the value of the flag --output. It selects a table, a wide table, or documents in the formats of kubectl.
type output struct {
	flags *genericclioptions.PrintFlags
	// documents prints documents. It is nil if the output is a table.
	documents printers.ResourcePrinter
}

// addFlags adds the flags to a command. `named` is true if the command prints objects of the Kubernetes API. Only such a
// command has the output format "name".
func (o *output) addFlags(cmd *cobra.Command, named bool) {
	o.flags = genericclioptions.NewPrintFlags("")
	if !named {
		o.flags.NamePrintFlags = nil
	}
	o.flags.AddFlags(cmd)
	formats := append([]string{formatWide}, o.flags.AllowedFormats()...)
	cmd.Flag("output").Usage = "Output format. One of: (" + strings.Join(formats, ", ") + ")."
	completeFlag(cmd, "output", cobra.FixedCompletions(formats, noFiles))
}

func (o *output) read(cmd *cobra.Command) (err error) {
	if o.wide() || *o.flags.OutputFormat == "" && *o.flags.TemplatePrinterFlags.TemplateArgument == "" {
		return nil
	}
	if format := *o.flags.OutputFormat; format == formatJSON || format == formatYAML {
		document := &documentPrinter{yaml: format == formatYAML}
		document.json, err = o.flags.JSONYamlPrintFlags.ToPrinter(formatJSON)
		o.documents = document
	} else {
		o.documents, err = o.flags.ToPrinter()
	}
	if err != nil {
		return program.UsageError(cmd, fmt.Errorf("--output: %w", err))
	}
	return nil
}

func (o *output) wide() bool { return *o.flags.OutputFormat == formatWide }

// documentPrinter prints JSON or YAML like the printers of cli-runtime, but escapes the control characters that users
// can write into annotations. A terminal would interpret them in JSON, and sigs.k8s.io/yaml would refuse to print them.
type documentPrinter struct {
	json printers.ResourcePrinter
	yaml bool
	// more is true after the first YAML document. A separator then precedes each document.
	more bool
}

func (p *documentPrinter) PrintObj(object runtime.Object, w io.Writer) (err error) {
	var printed bytes.Buffer
	if err := p.json.PrintObj(object, &printed); err != nil {
		return err
	}

	text := escapeControls(printed.String())
	if p.yaml {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
		if p.more {
			text = append([]byte("---\n"), text...)
		}
		p.more = true
	}
	_, err = w.Write(text)
	return err
}

// escapeControls escapes the control characters in the strings of a JSON document. encoding/json escapes only the
// control characters below U+0020.
func escapeControls(document string) []byte {
	var text bytes.Buffer
	for _, r := range document {
		if unicode.IsControl(r) && r != '\n' {
			fmt.Fprintf(&text, `\u%04x`, r)
			continue
		}
		text.WriteRune(r)
	}
	return text.Bytes()
}

// printList prints items as one document of the kind List. The items need not be objects of the Kubernetes API.
func printList[T any](o *output, w io.Writer, items []T) error {
	list := make([]any, 0, len(items))
	for i := range items {
		item, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&items[i])
		if err != nil {
			return err
		}
		list = append(list, item)
	}
	return o.documents.PrintObj(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "items": list,
	}}, w)
}

// shown maps a key to the text that the command last printed for the key. The key names a node, an object or a table row, and
// is empty if the command prints a single page.
type shown map[string]string

// changed returns the items whose text differs from the last one for their key. It replaces `before` by the texts of all items.
func changed[T any](before *shown, items []T, describe func(*T) (key, text string)) []T {
	var differ []T
	now := shown{}
	for i := range items {
		key, text := describe(&items[i])
		if was, ok := (*before)[key]; !ok || was != text {
			differ = append(differ, items[i])
		}
		now[key] = text
	}
	*before = now
	return differ
}

// printAgain prints the page for a key, unless the page is equal to the previous page for the key. It prints an empty
// line before every page except the first.
func (s shown) printAgain(w io.Writer, key, page string) {
	last, before := s[key]
	if last == page && before {
		return
	}

	if before {
		fmt.Fprintln(w)
	}
	s[key] = page
	fmt.Fprint(w, page)
}
