// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// author writes random manifests of pods in all styles of YAML, with comments and blank lines in unusual places.
type author struct {
	*rand.Rand
	newline string
	step    int
	// notes is the number of comments so far. It makes the text of each comment unique.
	notes int
	// If json is true, the author writes no block style and no comments.
	json bool
}

type pair struct {
	key   string
	value any
}

func (a *author) chance(percent int) bool { return a.IntN(100) < percent }

func (a *author) pod() []pair {
	fields := []pair{{"apiVersion", "v1"}, {"kind", "Pod"}}
	if a.chance(80) {
		metadata := []pair{{"name", "web"}}
		if a.chance(50) {
			metadata = append(metadata, pair{"annotations", a.annotations()})
		}
		if a.chance(30) {
			metadata = append(metadata, pair{"labels", a.some(pair{"app", "web # no comment"})})
		}
		fields = append(fields, pair{"metadata", metadata})
	}
	spec := []pair{{"containers", []any{a.container("main"), a.container("side"), a.container("last")}}}
	if a.chance(50) {
		spec = append(spec, pair{"initContainers", []any{a.container("first")}})
	}
	if a.chance(50) {
		spec = append(spec, pair{"qosResources", a.requests([]string{"rdt", "vendor.example/net"}, true)})
	}
	return append(fields, pair{"spec", a.shuffled(spec)})
}

func (a *author) annotations() any {
	switch a.IntN(5) {
	case 0:
		return nil
	case 1:
		return []pair{}
	case 2:
		return a.some(pair{"qos.noderesource.dev/pod", "vendor.example/disk=slow"})
	}
	return a.some(pair{"about", "it's: \"quoted\" # text"}, pair{"container.qos.noderesource.dev/main", "vendor.example/disk=slow"})
}

func (a *author) container(name string) any {
	fields := []pair{{"name", name}, {"image", "registry.example/web:1"}}
	if a.chance(85) {
		var resources any
		if a.chance(90) {
			resources = a.resources()
		}
		fields = append(fields, pair{"resources", resources})
	}
	if a.chance(40) {
		fields = append(fields, pair{"args", []any{"-c", "several\nlines # here\n\n", ""}})
	}
	return a.shuffled(fields)
}

func (a *author) resources() []pair {
	var fields []pair
	if a.chance(50) {
		var limits any
		if a.chance(80) {
			limits = a.some(pair{"cpu", "1"}, pair{"memory", "1Gi"})
		}
		fields = append(fields, pair{"limits", limits})
	}
	if a.chance(70) {
		fields = append(fields, pair{"qosResources", a.requests([]string{"k8s.io/rdt", "blockio"}, false)})
	}
	if a.chance(40) {
		fields = append(fields, pair{"requests", a.some(pair{"cpu", "1"})})
	}
	return a.shuffled(fields)
}

func (a *author) requests(names []string, pods bool) []any {
	list := []any{}
	for _, name := range names {
		if a.chance(30) {
			continue
		}
		class := map[string]string{"rdt": "gold", "k8s.io/rdt": "silver", "blockio": "high", "vendor.example/net": "fast"}[name]
		if a.chance(25) {
			class = ""
		}
		list = append(list, a.shuffled([]pair{{"name", name}, {"class", class}}))
	}
	if len(list) == 0 && pods {
		return nil
	}
	return list
}

// some returns a random subset of the fields. It may be empty.
func (a *author) some(fields ...pair) []pair {
	fields = a.shuffled(fields)
	return fields[:a.IntN(len(fields)+1)]
}

func (a *author) shuffled(fields []pair) []pair {
	a.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return fields
}

// comment returns a new comment with the given probability. Otherwise it returns "".
func (a *author) comment(percent int) string {
	if a.json || !a.chance(percent) {
		return ""
	}
	a.notes++
	return fmt.Sprintf("# note %d.", a.notes)
}

// block writes a value after its key or dash, mostly in block style. The lines of the value begin with `indent`.
func (a *author) block(out *strings.Builder, value any, indent string) {
	fields, isMapping := value.([]pair)
	list, isList := value.([]any)
	if !isMapping && !isList || len(fields)+len(list) == 0 || a.chance(15) {
		out.WriteString(" " + a.flow(value, ""))
		a.endLine(out, 15)
		return
	}
	a.endLine(out, 15)
	for _, field := range fields {
		a.ownLines(out, indent)
		out.WriteString(indent + a.key(field.key) + ":")
		below := indent + strings.Repeat(" ", a.step)
		if _, ok := field.value.([]any); ok && a.chance(50) {
			below = indent
		}
		a.value(out, field.value, below)
	}
	for _, element := range list {
		a.ownLines(out, indent)
		out.WriteString(indent + "-")
		inner := indent + "  "
		if fields, ok := element.([]pair); ok && len(fields) > 0 && a.chance(85) {
			// The first field is on the line of the dash.
			var text strings.Builder
			a.fieldsBehindDash(&text, fields, inner)
			out.WriteString(" " + text.String())
			continue
		}
		a.value(out, element, inner)
	}
}

func (a *author) fieldsBehindDash(out *strings.Builder, fields []pair, indent string) {
	for i, field := range fields {
		if i > 0 {
			a.ownLines(out, indent)
			out.WriteString(indent)
		}
		out.WriteString(a.key(field.key) + ":")
		a.value(out, field.value, indent+strings.Repeat(" ", a.step))
	}
}

func (a *author) value(out *strings.Builder, value any, indent string) {
	text, isText := value.(string)
	switch {
	case value == nil:
		if a.chance(30) {
			out.WriteString(" null")
		}
		a.endLine(out, 15)
	case isText && strings.Contains(text, "\n"):
		out.WriteString(" |" + []string{"", "+"}[a.IntN(2)] + a.newline)
		for line := range strings.Lines(text) {
			out.WriteString(indent + " " + strings.TrimSuffix(line, "\n") + a.newline)
		}
	case isText:
		out.WriteString(" " + a.scalar(text, false))
		a.endLine(out, 15)
	default:
		a.block(out, value, indent)
	}
}

func (a *author) endLine(out *strings.Builder, percent int) {
	if comment := a.comment(percent); comment != "" {
		out.WriteString(strings.Repeat(" ", 1+a.IntN(3)) + comment)
	} else if a.chance(5) {
		out.WriteString("  ")
	}
	out.WriteString(a.newline)
}

func (a *author) ownLines(out *strings.Builder, indent string) {
	if a.chance(8) {
		out.WriteString(a.newline)
	}
	if comment := a.comment(12); comment != "" {
		out.WriteString([]string{indent, "", indent + "  "}[a.IntN(3)] + comment + a.newline)
	}
}

// flow returns a value in flow style. If `indent` is empty, the value is on one line. Otherwise all lines after the first
// begin with `indent`.
func (a *author) flow(value any, indent string) string {
	open, closing := "[", "]"
	var parts []string
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return a.scalar(value, true)
	case []pair:
		open, closing = "{", "}"
		for _, field := range value {
			parts = append(parts, a.flowKey(field.key)+": "+a.flow(field.value, more(indent)))
		}
	case []any:
		for _, element := range value {
			parts = append(parts, a.flow(element, more(indent)))
		}
	}
	if indent == "" || len(parts) == 0 {
		return open + strings.Join(parts, []string{", ", ","}[a.IntN(2)]) + closing
	}
	lines := a.newline + more(indent)
	return open + lines + strings.Join(parts, ","+lines) + a.newline + indent + closing
}

func more(indent string) string {
	if indent == "" {
		return ""
	}
	return indent + "  "
}

func (a *author) flowKey(key string) string {
	if a.json {
		return `"` + key + `"`
	}
	return a.key(key)
}

func (a *author) key(key string) string {
	if a.chance(10) {
		return []string{`"` + key + `"`, "'" + key + "'"}[a.IntN(2)]
	}
	return key
}

func (a *author) scalar(text string, flow bool) string {
	double, single := a.chance(15), a.chance(15)
	switch {
	case a.json || double || strings.Contains(text, "\n"):
		return fmt.Sprintf("%q", text)
	case single || text == "" || strings.ContainsAny(text, "'\"#:") && !strings.HasPrefix(text, "registry") || flow && strings.Contains(text, ","):
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	return text
}

// generate returns a random manifest and the number of its comments. The function `object` makes each object of the
// manifest. Each seed gives a different manifest.
func generate(seed uint64, object func(*author) []pair) (text string, notes int) {
	a := &author{Rand: rand.New(rand.NewPCG(seed, 1)), newline: "\n"}
	a.step = []int{2, 2, 4, 3}[a.IntN(4)]
	if a.chance(20) {
		a.newline = "\r\n"
	}
	if a.chance(20) {
		a.json = true
		return a.flow(object(a), []string{"", " "}[a.IntN(2)]), 0
	}
	var out strings.Builder
	for range 1 + a.IntN(2) {
		if a.chance(70) || out.Len() > 0 {
			out.WriteString("---" + a.newline)
		}
		var document strings.Builder
		a.fieldsBehindDash(&document, object(a), "")
		out.WriteString(document.String())
	}
	text = out.String()
	if a.chance(10) {
		text = strings.TrimSuffix(text, a.newline)
	}
	return text, a.notes
}

// TestAllYAMLStylesAreConverted converts each pod to limits and to claims. Both results must request the same number of slots.
func TestAllYAMLStylesAreConverted(t *testing.T) {
	for seed := range uint64(300) {
		text, notes := generate(seed, (*author).pod)
		limits, claims := mustConvert(t, text, toLimits()), mustConvert(t, text, toClaims())
		checkGenerated(t, seed, text, string(limits.Text), notes)
		checkGenerated(t, seed, text, string(claims.Text), notes)
		want, got := addedLimits(t, text, limits.Text), addedLimits(t, text, claims.Text)+addedClaims(t, claims.Text)
		if want != got {
			t.Errorf("seed %d: %d classes are requested, want %d:\n%s\n---- became\n%s", seed, got, want, text, claims.Text)
		}
		if t.Failed() {
			return
		}
	}
}

func checkGenerated(t *testing.T, seed uint64, text, result string, notes int) {
	t.Helper()
	if slices.Compare(facts(t, []byte(text)), facts(t, []byte(result))) != 0 {
		t.Errorf("seed %d: fields other than the requests have changed:\n%s\n---- became\n%s", seed, text, result)
	}
	for i := 1; i <= notes; i++ {
		if note := fmt.Sprintf("# note %d.", i); strings.Count(result, note) != 1 {
			t.Errorf("seed %d: the comment %q occurs %d times in:\n%s\n---- converted from\n%s", seed, note, strings.Count(result, note), result, text)
		}
	}
	if strings.Contains(result, "qosResources") {
		t.Errorf("seed %d: not everything is converted:\n%s", seed, result)
	}
	if again := mustConvert(t, result, toLimits()); string(again.Text) != result {
		t.Errorf("seed %d: a second conversion changes the result", seed)
	}
}
