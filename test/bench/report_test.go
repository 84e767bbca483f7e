// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}

	for _, test := range []struct {
		name    string
		samples []time.Duration
		p       int
		want    time.Duration
	}{
		{"the middle of a hundred", hundred, 50, 50},
		{"all but one of a hundred", hundred, 99, 99},
		{"the only one", []time.Duration{7}, 99, 7},
		{"of few, the largest", []time.Duration{3, 1, 2}, 99, 3},
		{"of none", nil, 50, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := percentile(test.samples, test.p); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestAMissedGoalIsAnError: compared with the idle plugin, p50 is 11 instead of 10, and p99 is 30 instead of 10.
func TestAMissedGoalIsAnError(t *testing.T) {
	samples := map[string][]time.Duration{idleOne: {10, 10, 10}, ours: {11, 11, 30}}

	for _, test := range []struct {
		name, want string
		goal       goal
	}{
		{"both goals are met", "", goal{row: "start", p50: 1.5, p99: 3}},
		{"there is no goal", "", goal{row: "start"}},
		{"the goal of p99 is missed", "goals missed: start, ratio of p99 is 3.00, the goal is at most 2.00", goal{row: "start", p50: 1.5, p99: 2}},
		{"both goals are missed", "goals missed: start, ratio of p50 is 1.10, the goal is at most 1.05; start, ratio of p99 is 3.00, the goal is at most 2.00",
			goal{row: "start", p50: 1.05, p99: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := verdicts{tolerance: 1}
			line, got := test.goal.line(samples, &v), ""
			if err := v.err(); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if strings.Contains(line, "missed") != (test.want != "") {
				t.Errorf("line: %s", line)
			}
		})
	}
}

// TestALineHasTheRatiosToTheIdlePlugins: the line has the number of samples, p50 and p99 of the idle plugin and of qos-nri-plugin, their
// ratios with the goals, and the ratio of the second idle plugin to the first. The second line compares qos-nri-plugin with an idle plugin
// that does not validate containers.
func TestALineHasTheRatiosToTheIdlePlugins(t *testing.T) {
	samples := map[string][]time.Duration{
		idleOne: {20000, 20000}, idleAgain: {10000, 10000}, idlePlain: {8000, 10000}, ours: {20000, 40000},
	}
	g := goal{row: "create", p50: 1.15, p99: 2}
	const want = "| create | 2 | 20 µs | 20 µs | 20 µs | 40 µs | 1.00 | ≤ 1.15 | 2.00 | ≤ 2.00 | 0.50 |"
	if got := g.line(samples, &verdicts{tolerance: 1}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const wantPlain = "| create | 8 µs | 10 µs | 2.50 | 4.00 |"
	if got := validationLine("create", samples); got != wantPlain {
		t.Errorf("got  %s\nwant %s", got, wantPlain)
	}
}

func TestAToleranceAllowsMoreThanTheGoal(t *testing.T) {
	v := verdicts{tolerance: 2}
	if got := v.on("start", 3, 1.5); got != "≤ 1.50" || v.err() != nil {
		t.Errorf("twice the goal with a tolerance of 2: %q, %v", got, v.err())
	}
	if got := v.on("start", 3.1, 1.5); got != "≤ 1.50, missed" || v.err() == nil {
		t.Errorf("more than twice the goal with a tolerance of 2: %q, %v", got, v.err())
	}
}

func TestOnlyTheTablesOfAPageAreReplaced(t *testing.T) {
	page := "# Performance\n\n" + tablesBegin + "\nold\n\n" + tablesEnd + "\nmore\n"
	want := "# Performance\n\n" + tablesBegin + "\nnew\n\n" + tablesEnd + "\nmore\n"
	got, err := replaceTables([]byte(page), "new\n")
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if _, err := replaceTables([]byte("# Performance\n"), "new\n"); err == nil {
		t.Error("a page without the markers was accepted")
	}
}
