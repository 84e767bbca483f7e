// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
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

// The plugin's process may use at most these resources while all containers of the benchmark run. During a
// synchronization, it may use more memory.
const (
	mostMemory = 30  // MiB, resident
	mostCPU    = 0.5 // per cent of one CPU, while nothing happens
)

func goals() []goal {
	return []goal{{createNothing, 1.15, 2}, {createAsked, 1.5, 2}, {startNothing, 0, 2}, {startAsked, 1.5, 2}, {synchronize, 3, 0}}
}

// report writes the tables. It returns an error that names the goals that were missed.
func report(w io.Writer, o options, sides []*side, all results) error {
	var v verdicts
	fmt.Fprintf(w, "%s, %d CPUs, NRI %s. %d containers live during creations, %d during synchronizations, %.1f KB each.\n\n",
		runtime.Version(), runtime.NumCPU(), nriVersion(), o.live, o.many, containerSize(sides[0]))
	fmt.Fprintln(w, "| The runtime waits for | samples | idle p50 | p99 | plugin p50 | p99 | ratio p50 | goal | ratio p99 | goal | idle again, p50 "+
		"| without validation p50 | p99 | ratio p50 | ratio p99 |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|---|--:|---|--:|--:|--:|--:|--:|")
	for _, g := range goals() {
		fmt.Fprintln(w, g.line(all[g.row], &v))
	}
	fmt.Fprintln(w, "\n| CPU time of the plugin's process for | idle | plugin | ratio | plugin with 5 % of a CPU |\n|---|--:|--:|--:|--:|")
	for _, what := range []string{creation, synchronize} {
		base, plugin := sides[1].cpu[what], sides[0].cpu[what]
		fmt.Fprintf(w, "| %s | %s | %s | %.2f | %s |\n", what, micros(base), micros(plugin), float64(plugin)/float64(base), micros(20*plugin))
	}
	fmt.Fprintf(w, "\n| With %d containers | resident, MiB | goal | at most ever, MiB | %% of a CPU while nothing happens | goal |\n", o.many)
	fmt.Fprintln(w, "|---|--:|---|--:|--:|---|")
	for _, s := range sides[:2] {
		if err := reportProcess(w, o, s, &v); err != nil {
			return err
		}
	}
	return v.err()
}

func (g goal) line(bySide map[string][]time.Duration, v *verdicts) string {
	base, plugin, again, plain := bySide[idleOne], bySide[ours], bySide[idleAgain], bySide[idlePlain]
	ratio := func(of, to []time.Duration, p int) float64 {
		return float64(percentile(of, p)) / float64(percentile(to, p))
	}
	p50, p99 := ratio(plugin, base, 50), ratio(plugin, base, 99)
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %.2f | %s | %.2f | %s | %.2f | %s | %s | %.2f | %.2f |", g.row, len(base),
		micros(percentile(base, 50)), micros(percentile(base, 99)), micros(percentile(plugin, 50)), micros(percentile(plugin, 99)),
		p50, v.on(g.row+", ratio of p50", p50, g.p50), p99, v.on(g.row+", ratio of p99", p99, g.p99), ratio(again, base, 50),
		micros(percentile(plain, 50)), micros(percentile(plain, 99)), ratio(plugin, plain, 50), ratio(plugin, plain, 99))
}

func reportProcess(w io.Writer, o options, s *side, v *verdicts) error {
	now, most, err := s.memory()
	if err != nil {
		return err
	}
	cpu := 100 * s.cpu[rest].Seconds() / o.rest.Seconds()
	memoryVerdict, cpuVerdict := "", ""
	if s.name == ours {
		memoryVerdict, cpuVerdict = v.on("resident memory in MiB", now, mostMemory), v.on("% of a CPU while nothing happens", cpu, mostCPU)
	}

	_, err = fmt.Fprintf(w, "| %s | %.1f | %s | %.1f | %.2f | %s |\n", s.name, now, memoryVerdict, most, cpu, cpuVerdict)
	return err
}

// verdicts collects the goals that were missed.
type verdicts struct{ missed []string }

// on compares a measurement with its maximum, and returns a cell of a table. The cell is empty without a maximum.
func (v *verdicts) on(what string, measured, most float64) string {
	switch {
	case most == 0:
		return ""
	case measured <= most:
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

// percentile returns the smallest sample that p per cent of the samples do not exceed. It returns 0 without samples.
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
