// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/internal/program"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// recommended is the answer of a node: the JSON form of qos.v1alpha1.RecommendResponse, whose Go type would link gRPC.
type recommended struct {
	Recommendations []recommendation `json:"recommendations"`
}

// recommendation is the advice for a container. The JSON form is part of a node's answer and of the output of -o json.
type recommendation struct {
	Node         string         `json:"node"`
	Namespace    string         `json:"namespace"`
	Pod          string         `json:"pod"`
	PodUID       string         `json:"podUid"`
	Container    string         `json:"container,omitempty"`
	Resource     string         `json:"resource"`
	PresentClass string         `json:"presentClass"`
	From         *time.Time     `json:"from,omitempty"`
	To           *time.Time     `json:"to,omitempty"`
	Problem      string         `json:"problem,omitempty"`
	Outcome      string         `json:"outcome,omitempty"`
	Class        string         `json:"class,omitempty"`
	Figures      []classFigure  `json:"figures,omitempty"`
	Left         float64        `json:"left"`
	Held         bool           `json:"held"`
	Full         bool           `json:"full"`
	Mutable      bool           `json:"mutable"`
	ClassFile    map[string]any `json:"classFile,omitempty"`
}

// classFigure compares the use with a limit. Name is the name of a metric.
type classFigure struct {
	Limit string  `json:"limit"`
	Name  string  `json:"name"`
	Part  string  `json:"part,omitempty"`
	Need  float64 `json:"need"`
	Most  float64 `json:"most"`
	Bound float64 `json:"bound"`
	Close float64 `json:"close"`
	Held  float64 `json:"held"`
}

func (r *recommendation) row() []string {
	fits, left := nothing, nothing
	switch r.Outcome {
	case "fits":
		fits, left = r.Class, percent(r.Left)
	case "add":
		fits = "<none>"
	}
	return []string{r.Pod, cmp.Or(r.Container, wholePod), r.Resource, className(r.PresentClass), fits, left, r.Node, r.why()}
}

// why returns the figures of the advice, or the reason why there is no advice.
func (r *recommendation) why() string {
	switch {
	case r.Problem != "":
		return r.Problem
	case r.Outcome == "unused":
		return "it has used nothing that these classes limit"
	}
	var texts []string
	held := 0.0
	for i := range r.Figures {
		texts = append(texts, r.Figures[i].text())
		held = max(held, r.Figures[i].Held)
	}
	text := strings.Join(texts, "; ")
	if r.Outcome == "add" {
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

func (f *classFigure) text() string {
	text := fmt.Sprintf("%s %s: needs %s of %s, peak %s", f.Limit, f.Part, amount(f.Name, f.Need), amount(f.Name, f.Bound), amount(f.Name, f.Most))
	if f.Part == "" {
		text = strings.Replace(text, " :", ":", 1)
	}
	if f.Close > 0 {
		text += fmt.Sprintf(", close to the limit %s of the time", percent(f.Close))
	}
	return text
}

func percent(part float64) string { return fmt.Sprintf("%.0f%%", 100*part) }

// command returns the command that gives the recommended class to the running container, or "" if the container has or
// cannot get the class.
func (r *recommendation) command() string {
	if r.Outcome != "fits" || r.Class == r.PresentClass || r.Full || !r.Mutable {
		return ""
	}
	of := "-c " + r.Container
	if r.Container == "" {
		of = "--pod"
	}
	return fmt.Sprintf("kubectl qos set %s -n %s %s %s=%s", r.Pod, r.Namespace, of, r.Resource, r.Class)
}

// size orders proposed classes of one resource.
func (r *recommendation) size() (size float64) {
	for _, f := range r.Figures {
		size += math.Log1p(f.Bound)
	}
	return size
}

// classFileOf returns a class file with the classes to add. Comments name the classes that fit the other containers. If
// several pods of a workload need a class, the file has the largest one.
func classFileOf(all []recommendation) ([]byte, error) {
	var comments bytes.Buffer
	largest := map[[2]string]*recommendation{}
	var order [][2]string
	for i := range all {
		r := &all[i]
		fits := r.why()
		if r.Outcome == "fits" {
			fits = fmt.Sprintf("class %s fits: %s", r.Class, fits)
		}
		comments.WriteString(program.Printable(fmt.Sprintf("# %s/%s %s, %s: %s", r.Namespace, r.Pod, cmp.Or(r.Container, wholePod), r.Resource, fits)) + "\n")
		key := [2]string{r.Resource, r.Container}
		switch other := largest[key]; {
		case r.ClassFile == nil:
		case other == nil:
			order = append(order, key)
			largest[key] = r
		case r.size() > other.size():
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
