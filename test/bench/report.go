// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
)

// goal has the largest allowed ratios between the plugin and the idle plugin with the same hooks, for p50 and p99 of
// one row. A ratio of 0 means that there is no goal.
type goal struct {
	row      string
	p50, p99 float64
}

func goals() []goal {
	return []goal{
		{createNothing, 1.15, 2}, {createAsked, 1.5, 2}, {createSix, 1.5, 2}, {startNothing, 0, 2}, {startAsked, 1.5, 2}, {startSix, 0, 0},
		{synchronize, 3, 0},
	}
}

// report prints the tables, or writes them into the page. It returns an error that names the goals that were missed.
func (m *measurements) report(o options) error {
	v := verdicts{tolerance: o.tolerance}
	var text strings.Builder
	m.tables(&text, o, &v)
	if o.page == "" {
		fmt.Print(text.String())
		return v.err()
	}

	page, err := os.ReadFile(o.page)
	if err != nil {
		return err
	}

	page, err = replaceTables(page, text.String())
	if err != nil {
		return fmt.Errorf("%s: %w", o.page, err)
	}

	if err := os.WriteFile(o.page, page, 0o600); err != nil {
		return err
	}

	return v.err()
}

// The tables of a page are between these two lines.
const (
	tablesBegin = "<!-- The command `make bench PAGE=docs/performance.md` replaces all tables below. -->\n"
	tablesEnd   = "<!-- end of the tables -->\n"
)

func replaceTables(page []byte, tables string) ([]byte, error) {
	before, rest, begins := strings.Cut(string(page), tablesBegin)
	_, after, ends := strings.Cut(rest, tablesEnd)
	if !begins || !ends {
		return nil, fmt.Errorf("there is no %q before %q", strings.TrimSpace(tablesBegin), strings.TrimSpace(tablesEnd))
	}
	return []byte(before + tablesBegin + "\n" + tables + "\n" + tablesEnd + after), nil
}

func (m *measurements) tables(w io.Writer, o options, v *verdicts) {
	fmt.Fprintf(w, "Measured with %s on %s/%s, %d CPUs, NRI %s.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), nriVersion())
	fmt.Fprintf(w, "%d containers live during creations, and %d during synchronizations; each has a spec of %.1f KB.\n",
		o.live, o.many, containerSize(m.sides[ours]))
	m.waitTables(w, v)
	m.bareTables(w, v)
	m.processTables(w, o, v)
}

// waitTables writes how long the runtime waits for hooks of qos-nri-plugin, compared with hooks of the idle plugins.
func (m *measurements) waitTables(w io.Writer, v *verdicts) {
	fmt.Fprint(w, "\n| The runtime waits for | samples | idle p50 | p99 | plugin p50 | p99 | ratio p50 | goal | ratio p99 | goal | idle again |\n"+
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, g := range goals() {
		fmt.Fprintln(w, g.line(m.waits[g.row], v))
	}
	fmt.Fprint(w, "\n| The runtime waits for | idle without validation p50 | p99 | ratio p50 | ratio p99 |\n|---|--:|--:|--:|--:|\n")
	for _, g := range goals() {
		fmt.Fprintln(w, validationLine(g.row, m.waits[g.row]))
	}
}

func (g goal) line(bySide map[string][]time.Duration, v *verdicts) string {
	base, plugin, again := bySide[idleOne], bySide[ours], bySide[idleAgain]
	p50, p99 := ratio(plugin, base, 50), ratio(plugin, base, 99)
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %.2f | %s | %.2f | %s | %.2f |", g.row, len(base),
		atPercentile(base, 50), atPercentile(base, 99), atPercentile(plugin, 50), atPercentile(plugin, 99),
		p50, v.on(g.row+", ratio of p50", p50, g.p50), p99, v.on(g.row+", ratio of p99", p99, g.p99), ratio(again, base, 50))
}

func validationLine(row string, bySide map[string][]time.Duration) string {
	plain, plugin := bySide[idlePlain], bySide[ours]
	return fmt.Sprintf("| %s | %s | %s | %.2f | %.2f |", row, atPercentile(plain, 50), atPercentile(plain, 99),
		ratio(plugin, plain, 50), ratio(plugin, plain, 99))
}

// verdicts collects the goals that were missed.
type verdicts struct {
	tolerance float64
	missed    []string
}

// on compares a measurement with its maximum, and returns a cell of a table. The cell is empty if there is no maximum.
func (v *verdicts) on(what string, measured, most float64) string {
	switch {
	case most == 0:
		return ""
	case measured <= most*v.tolerance:
		return fmt.Sprintf("≤ %.2f", most)
	}
	v.missed = append(v.missed, fmt.Sprintf("%s is %.2f, the goal is at most %.2f", what, measured, most))
	return fmt.Sprintf("≤ %.2f, missed", most)
}

func (v *verdicts) err() error {
	if len(v.missed) == 0 {
		return nil
	}
	return fmt.Errorf("goals missed: %s", strings.Join(v.missed, "; "))
}

func micros(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }

func atPercentile(samples []time.Duration, p int) string { return micros(percentile(samples, p)) }

func ratio(of, to []time.Duration, p int) float64 {
	return float64(percentile(of, p)) / float64(percentile(to, p))
}

// percentile returns the smallest sample that `p` per cent of the samples do not exceed. It returns 0 without samples.
func percentile(samples []time.Duration, p int) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)*p+99)/100-1]
}

// containerSize returns the size of a container and its pod on the wire, in KB.
func containerSize(s *side) float64 {
	pods, containers := s.runtime.Snapshot()
	return float64(proto.Size(pods[0])+proto.Size(containers[0])) / 1000
}

func nriVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/containerd/nri" })
	if i < 0 {
		return "unknown"
	}
	return info.Deps[i].Version
}
