// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"cmp"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
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
	// aligned pads cells so that the columns align, and writes the result to `text`.
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
	return tables.Trim(p.text.String(), ""), err
}

// align formats rows without a header, with the distances that kubectl's tables have.
func align(rows [][]string, indent string) string { return tables.Align(rows, indent, 6, 3) }

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
