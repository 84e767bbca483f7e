// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
)

// goal is the maximum of p50, as a multiple of the idle plugin's p50.
type goal struct {
	row string
	// most is 0 if there is no goal.
	most float64
}

// mostMemory is the maximum resident memory of the plugin, in MiB. During a synchronization the plugin may use more.
const mostMemory = 30

func goals() []goal {
	return []goal{{createNothing, 1.15}, {createAsked, 1.5}, {startNothing, 0}, {startAsked, 0}, {synchronize, 3}}
}

// report writes the tables.
func report(w io.Writer, o options, sides []*side, all results) error {
	fmt.Fprintf(w, "%s, %d CPUs, NRI %s. %d containers live during creations, %d during synchronizations, %.1f KB each.\n\n",
		runtime.Version(), runtime.NumCPU(), nriVersion(), o.live, o.many, containerSize(sides[0]))
	fmt.Fprintln(w, "| The runtime waits for | samples | idle p50 | idle p99 | plugin p50 | plugin p99 | p50 ratio | goal | | idle again, p50 ratio |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|--:|---|--:|")
	for _, g := range goals() {
		fmt.Fprintln(w, g.line(all[g.row]))
	}
	fmt.Fprintln(w, "\n| CPU time of the plugin's process for | idle | plugin | ratio | plugin with 5 % of a CPU |\n|---|--:|--:|--:|--:|")
	for _, what := range []string{creation, synchronize} {
		base, plugin := sides[1].cpu[what], sides[0].cpu[what]
		fmt.Fprintf(w, "| %s | %s | %s | %.2f | %s |\n", what, micros(base), micros(plugin), float64(plugin)/float64(base), micros(20*plugin))
	}
	fmt.Fprintf(w, "\n| With %d containers | resident, MiB | goal | | at most ever, MiB | CPU while nothing happens |\n|---|--:|--:|---|--:|--:|\n", o.many)
	for _, s := range sides[:2] {
		if err := reportProcess(w, o, s); err != nil {
			return err
		}
	}
	return nil
}

func (g goal) line(bySide map[string][]time.Duration) string {
	base, plugin, again := bySide[idleOne], bySide[ours], bySide[idleAgain]
	ratio := float64(percentile(plugin, 50)) / float64(percentile(base, 50))
	noise := float64(percentile(again, 50)) / float64(percentile(base, 50))
	wanted, met := "", ""
	if g.most > 0 {
		wanted, met = fmt.Sprintf("≤ %.2f", g.most), verdict(ratio <= g.most)
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %.2f | %s | %s | %.2f |", g.row, len(base),
		micros(percentile(base, 50)), micros(percentile(base, 99)), micros(percentile(plugin, 50)), micros(percentile(plugin, 99)),
		ratio, wanted, met, noise)
}

func reportProcess(w io.Writer, o options, s *side) error {
	now, most, err := s.memory()
	if err != nil {
		return err
	}
	wanted, met := "", ""
	if s.name == ours {
		wanted, met = fmt.Sprintf("≤ %d", mostMemory), verdict(now <= mostMemory)
	}
	_, err = fmt.Fprintf(w, "| %s | %.1f | %s | %s | %.1f | %.2f %% |\n", s.name, now, wanted, met, most, 100*s.cpu[rest].Seconds()/o.rest.Seconds())
	return err
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
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
