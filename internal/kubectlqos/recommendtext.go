// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func recommendedRow(r *reports.Recommendation) []string {
	fits, left := nothing, nothing
	switch r.Outcome {
	case reports.Fits:
		fits, left = r.Class, percent(r.Left)
	case reports.Add:
		fits = "<none>"
	}
	return []string{r.Pod, cmp.Or(r.Name, wholePod), r.Resource, className(r.Present), fits, left, r.Node, whyRecommended(r)}
}

// whyRecommended returns the figures of the advice, or the reason why there is no advice.
func whyRecommended(r *reports.Recommendation) string {
	switch {
	case r.Problem != "":
		return r.Problem
	case r.Outcome == reports.Unused:
		return "it has used nothing that these classes limit"
	}
	var texts []string
	held := 0.0
	for i := range r.Figures {
		texts = append(texts, figureText(&r.Figures[i]))
		held = max(held, r.Figures[i].Held)
	}
	text := strings.Join(texts, "; ")
	if r.Outcome == reports.Add {
		text = "no class fits, add one: " + text
	}
	if r.Full {
		text += "; the class is full"
	}
	if r.Held {
		text += fmt.Sprintf("; held at its limit %s of the time, needs more: this is the next step", percent(held))
	}
	return text
}

func figureText(f *reports.Figure) string {
	text := fmt.Sprintf("%s %s: needs %s of %s, peak %s", f.Name, f.Part, amount(f.Measure, f.Need), amount(f.Measure, f.Bound), amount(f.Measure, f.Most))
	if f.Part == "" {
		text = strings.Replace(text, " :", ":", 1)
	}
	if f.Close > 0 {
		text += fmt.Sprintf(", close to the limit %s of the time", percent(f.Close))
	}
	return text
}

func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }

// recommendedCommand returns the command that gives the recommended class to the running container, or "" if the container has or
// cannot get the class.
func recommendedCommand(r *reports.Recommendation) string {
	if r.Outcome != reports.Fits || r.Class == r.Present || r.Full || !r.Mutable {
		return ""
	}
	of := "-c " + r.Name
	if r.Name == "" {
		of = "--pod"
	}
	return fmt.Sprintf("kubectl qos set %s -n %s %s %s=%s", r.Pod, r.Namespace, of, r.Resource, r.Class)
}

// sizeOf orders proposed classes of one resource.
func sizeOf(r *reports.Recommendation) (size float64) {
	for _, f := range r.Figures {
		size += math.Log1p(f.Bound)
	}
	return size
}

// classFileOf returns a class file with the classes to add. Comments name the classes that fit the other containers. If
// several pods of a workload need a class, the file has the largest one.
func classFileOf(all []reports.Recommendation) ([]byte, error) {
	var comments bytes.Buffer
	largest := map[[2]string]*reports.Recommendation{}
	var order [][2]string
	for i := range all {
		r := &all[i]
		fits := whyRecommended(r)
		if r.Outcome == reports.Fits {
			fits = fmt.Sprintf("class %s fits: %s", r.Class, fits)
		}
		comments.WriteString(program.Printable(fmt.Sprintf("# %s/%s %s, %s: %s", r.Namespace, r.Pod, cmp.Or(r.Name, wholePod), r.Resource, fits)) + "\n")
		key := [2]string{r.Resource, r.Name}
		switch other := largest[key]; {
		case r.ClassFile == nil:
		case other == nil:
			order = append(order, key)
			largest[key] = r
		case sizeOf(r) > sizeOf(other):
			largest[key] = r
		}
	}

	var file any = map[string]any{"apiVersion": classes.APIVersion, "kind": classes.FileKind, "resources": []any{}}
	for _, key := range order {
		file = merged(file, largest[key].ClassFile)
	}
	text, err := yaml.Marshal(file)
	return append(comments.Bytes(), text...), err
}

// merged returns `value` with the additional fields and elements of `with`. In lists, it merges the elements that have
// the same name.
func merged(value, with any) any {
	switch with := with.(type) {
	case map[string]any:
		value, is := value.(map[string]any)
		if !is {
			return with
		}
		for key, entry := range with {
			value[key] = merged(value[key], entry)
		}
		return value
	case []any:
		value, _ := value.([]any)
		for _, element := range with {
			value = mergedInto(value, element)
		}
		return value
	}
	return with
}

func mergedInto(list []any, element any) []any {
	for i := range list {
		if name := nameIn(element); name != nil && nameIn(list[i]) == name {
			list[i] = merged(list[i], element)
			return list
		}
	}
	return append(list, element)
}

func nameIn(element any) any {
	entry, _ := element.(map[string]any)
	return entry["name"]
}
