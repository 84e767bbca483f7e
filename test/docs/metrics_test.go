// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/config"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// metric is a metric that a program exports.
type metric struct {
	name, kind, help string
	labels           []string
}

// TestTheMetricsPageHasAllMetrics compares docs/metrics.md with the code.
func TestTheMetricsPageHasAllMetrics(t *testing.T) {
	checkGenerated(t, "docs/metrics.md", metricsTables(append(usageMetrics(), metricsInSources(t)...)))
}

func metricsTables(all []metric) string {
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	var plugin, shim strings.Builder
	for _, m := range all {
		out := &plugin
		if strings.HasPrefix(m.name, "qos_shim_") {
			out = &shim
		}
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}

	const table = "\n## %s\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n%s"
	return fmt.Sprintf(table, "qos-nri-plugin", plugin.String()) + fmt.Sprintf(table, "qos-kubelet-shim", shim.String())
}

// usageMetrics returns the metrics of the measures of all kinds of resources. A measure that several kinds share is
// returned once.
func usageMetrics() (all []metric) {
	add := func(prefix string, measures []classes.Measure, labels ...string) {
		for _, m := range measures {
			labels := slices.Clone(labels)
			if m.Part != "" {
				labels = append(labels, m.Part)
			}
			found := metric{prefix + m.Name, kindOf(m.Name), m.Help, labels}
			if !slices.ContainsFunc(all, func(other metric) bool { return other.name == found.name }) {
				all = append(all, found)
			}
		}
	}

	for _, kind := range config.OfflineKinds() {
		add("qos_class_", kind.Measures, "resource", "class")
		add("qos_volume_", kind.OfVolumes, "resource", "namespace", "pod", "container", "volume", "class")
		add("container_", kind.Monitored, "namespace", "pod", "container", "class")
	}

	return all
}

// kindOf returns the type that the name of a metric implies.
func kindOf(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

// metricsInSources returns the metrics with a literal name in internal/.
func metricsInSources(t *testing.T) (all []metric) {
	t.Helper()
	for _, name := range goFiles(t, false, "internal") {
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), 0)
		must(t, err)

		lists := map[string][]string{}
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.AssignStmt:
				if name, isName := node.Lhs[0].(*ast.Ident); isName {
					lists[name.Name] = literals(node.Rhs[0])
				}
			case *ast.CallExpr:
				if found := metricOf(node, lists); strings.HasPrefix(found.name, "qos_") {
					all = append(all, found)
				}
			}
			return true
		})
	}
	return all
}

// metricOf returns the metric that a call creates: NewDesc, or a function such as NewCounterVec that gets options and
// labels. `lists` has the variables with lists of labels.
func metricOf(call *ast.CallExpr, lists map[string][]string) (m metric) {
	function, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod || len(call.Args) == 0 {
		return m
	}

	rest := call.Args[1:]
	if function.Sel.Name == "NewDesc" {
		m.name, m.help, rest = literal(call.Args[0]), literal(call.Args[1]), call.Args[2:]
		m.kind = kindOf(m.name)
	} else if options, hasOptions := call.Args[0].(*ast.CompositeLit); hasOptions {
		for _, kind := range []string{"Gauge", "Counter", "Histogram"} {
			if strings.HasPrefix(function.Sel.Name, "New"+kind) {
				m = metric{field(options, "Name"), strings.ToLower(kind), field(options, "Help"), nil}
			}
		}
	}

	for _, argument := range rest {
		if name, isName := argument.(*ast.Ident); isName {
			m.labels = append(m.labels, lists[name.Name]...)
		}
		m.labels = append(m.labels, literals(argument)...)
	}

	return m
}

// field returns the string of a field in a composite literal.
func field(of *ast.CompositeLit, name string) string {
	for _, element := range of.Elts {
		if pair, isPair := element.(*ast.KeyValueExpr); isPair {
			if key, isName := pair.Key.(*ast.Ident); isName && key.Name == name {
				return literal(pair.Value)
			}
		}
	}
	return ""
}

// literals returns the strings of a composite literal.
func literals(expression ast.Expr) (all []string) {
	if list, isList := expression.(*ast.CompositeLit); isList {
		for _, element := range list.Elts {
			if text := literal(element); text != "" {
				all = append(all, text)
			}
		}
	}
	return all
}

func literal(expression ast.Expr) string {
	if basic, isLiteral := expression.(*ast.BasicLit); isLiteral {
		if text, err := strconv.Unquote(basic.Value); err == nil {
			return text
		}
	}
	return ""
}
