// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// report has the results of the tests that ran in a VM.
type report struct {
	names   []string // in the order in which they began
	results map[string]*result
}

type result struct {
	outcome string // "pass", "fail" or "skip", or "" if the test did not end
	output  strings.Builder
}

// readEvents reads the events of test2json. It copies their output to the writer live, and puts the name of the machine
// before each line. At the first event of a test, it calls the function `begun`.
func readEvents(events io.Reader, live io.Writer, machine string, begun func()) (*report, error) {
	r := &report{results: map[string]*result{}}
	decoder := json.NewDecoder(events)
	for {
		var event struct{ Action, Test, Output string }
		switch err := decoder.Decode(&event); {
		case err == io.EOF:
			return r, nil
		case err != nil:
			return r, fmt.Errorf("read test events: %w", err)
		}
		if event.Test != "" && len(r.results) <= 1 {
			begun()
		}
		test := r.result(event.Test)
		switch event.Action {
		case "output":
			test.output.WriteString(event.Output)
			if _, err := io.WriteString(live, "  "+machine+" | "+event.Output); err != nil {
				return r, err
			}
		case "pass", "fail", "skip":
			test.outcome = event.Action
		}
	}
}

func (r *report) has(name string) bool {
	_, ok := r.results[name]
	return ok
}

func (r *report) result(name string) *result {
	if _, ok := r.results[name]; !ok {
		r.names = append(r.names, name)
		r.results[name] = &result{}
	}
	return r.results[name]
}

// replay gives `t` the result of the test that had this name in the VM. For each subtest in the VM, it runs a subtest of `t`.
func (r *report) replay(t *testing.T, name string) {
	test := r.result(name)
	for _, child := range r.children(name) {
		t.Run(child[strings.LastIndex(child, "/")+1:], func(t *testing.T) { r.replay(t, child) })
	}
	switch test.outcome {
	case "pass":
	case "skip":
		t.Skip(test.output.String())
	case "fail":
		t.Error(test.output.String())
	default:
		t.Errorf("did not end:\n%s\n%s", test.output.String(), r.result("").output.String())
	}
}

func (r *report) children(name string) []string {
	var children []string
	for _, candidate := range r.names {
		if rest, ok := strings.CutPrefix(candidate, name+"/"); ok && !strings.Contains(rest, "/") {
			children = append(children, candidate)
		}
	}
	return children
}

// TestReportListsSubtestsOfOneLevelInTheirOrder also checks the outcomes, and the copied output.
func TestReportListsSubtestsOfOneLevelInTheirOrder(t *testing.T) {
	events := `{"Action":"run","Test":"TestNode"}
{"Action":"run","Test":"TestNode/b"}
{"Action":"output","Test":"TestNode/b","Output":"--- PASS\n"}
{"Action":"run","Test":"TestNode/b/deeper"}
{"Action":"skip","Test":"TestNode/b/deeper"}
{"Action":"run","Test":"TestNode/a"}
{"Action":"fail","Test":"TestNode/a"}
`

	var live strings.Builder
	r, err := readEvents(strings.NewReader(events), &live, "machine", func() {})
	must(t, err)
	if got, want := live.String(), "  machine | --- PASS\n"; got != want {
		t.Errorf("copied output: %q, want %q", got, want)
	}

	if diff := cmp.Diff([]string{"TestNode/b", "TestNode/a"}, r.children("TestNode")); diff != "" {
		t.Errorf("children of TestNode (-want +got):\n%s", diff)
	}

	if got := r.children("TestNode/b"); len(got) != 1 || r.results["TestNode/b/deeper"].outcome != "skip" {
		t.Errorf("the children of TestNode/b are %q, with the outcome %q; want one that is skipped", got, r.result("TestNode/b/deeper").outcome)
	}

	if r.results["TestNode/a"].outcome != "fail" {
		t.Errorf("the outcome of test a is %q", r.results["TestNode/a"].outcome)
	}
}
