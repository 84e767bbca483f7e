// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
)

// Tables show these texts for values that are empty, missing or unlimited.
const (
	systemDefault = "<system default>" // the empty class, which enforces nothing
	wholePod      = "<pod>"            // replaces the container name in rows of the pod itself
	nothing       = "-"
	unlimited     = "inf" // as in KEP-3008, section "Kubectl"
)

// tablePrinter prints rows as kubectl does. It prints the header before the first rows. A column never becomes narrower
// than it was in earlier rows.
type tablePrinter struct {
	columns []metav1.TableColumnDefinition
	printer printers.ResourcePrinter
	text    bytes.Buffer
	// aligned pads cells so that the columns align, and writes the result to text.
	aligned interface {
		io.Writer
		Flush() error
	}
}

// newTablePrinter makes a printer for a table with these columns. The columns whose name begins with "+" are printed
// only in wide tables.
func newTablePrinter(wide bool, columns ...string) *tablePrinter {
	p := &tablePrinter{printer: printers.NewTablePrinter(printers.PrintOptions{Wide: wide})}
	p.aligned = printers.GetNewTabWriter(&p.text)
	for _, name := range columns {
		column := metav1.TableColumnDefinition{Name: name}
		if name, ok := strings.CutPrefix(name, "+"); ok {
			column = metav1.TableColumnDefinition{Name: name, Priority: 1}
		}
		p.columns = append(p.columns, column)
	}
	return p
}

func (p *tablePrinter) format(rows [][]string) (string, error) {
	table := &metav1.Table{ColumnDefinitions: p.columns}
	for _, row := range rows {
		cells := make([]any, 0, len(row))
		for _, cell := range row {
			cells = append(cells, program.Printable(cell))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}

	p.text.Reset()
	if err := p.printer.PrintObj(table, p.aligned); err != nil {
		return "", err
	}
	err := p.aligned.Flush()
	return trimLines(p.text.String(), ""), err
}

// align formats rows without a header, each with the given indentation. The rows may have different numbers of cells.
func align(rows [][]string, indent string) string {
	columns := 0
	for _, row := range rows {
		columns = max(columns, len(row))
	}

	var text strings.Builder
	w := printers.GetNewTabWriter(&text)
	for _, row := range rows {
		cells := make([]string, columns)
		for i, cell := range row {
			cells[i] = program.Printable(cell)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	_ = w.Flush() // a strings.Builder has no errors
	return trimLines(text.String(), indent)
}

func trimLines(text, indent string) string {
	var trimmed strings.Builder
	for line := range strings.Lines(text) {
		trimmed.WriteString(strings.TrimRight(indent+line, " \n") + "\n")
	}
	return trimmed.String()
}

func className(class string) string { return cmp.Or(class, systemDefault) }

func foreignText(setting string) string { return "<" + setting + ">" }

func orNothing(text string) string { return cmp.Or(text, nothing) }

func yesNo(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

func timeText(t *metav1.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
