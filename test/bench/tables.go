// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"time"
)

const (
	// mostOverBare is the highest permitted ratio of two durations: the start of a container with a class by
	// qos-nri-plugin, and by a plugin that makes only the system calls.
	mostOverBare = 1.5
	// mostReload and mostReloadTime limit the duration of a change of all classes. mostReload is a ratio to the duration of
	// the bare writes, and mostReloadTime is in seconds.
	mostReload, mostReloadTime = 2, 1

	// The plugin's process may use at most these resources while all containers of the benchmark run. During a
	// synchronization, it may use more memory.
	mostMemory = 30  // MiB, resident
	mostCPU    = 0.5 // per cent of one CPU, while nothing happens
	// The plugin with all measurements may use at most these resources. The memory is in addition to that of the plugin
	// without measurements.
	mostMemoryOfAll = 12
	mostCPUOfAll    = 1
)

// bareTables compares the plugin with bare system calls.
func (m *measurements) bareTables(w io.Writer, v *verdicts) {
	fmt.Fprint(w, "\n| Start with a class | files read | written | bare p50 | p99 | plugin p50 | p99 | ratio p50 | goal |\n"+
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, row := range []struct {
		what         string
		costs        hookCosts
		bare, plugin string
	}{{"cgroup v1", m.v1, bareLegacy, oursLegacy}, {"cgroup v2", m.v2, bare, ours}} {
		reads, writes := row.costs.start.counts()
		base, plugin := m.waits[startAsked][row.bare], m.waits[startAsked][row.plugin]
		p50 := ratio(plugin, base, 50)
		fmt.Fprintf(w, "| %s | %d | %d | %s | %s | %s | %s | %.2f | %s |\n", row.what, reads, writes, atPercentile(base, 50), atPercentile(base, 99),
			atPercentile(plugin, 50), atPercentile(plugin, 99), p50, v.on("start with a class, "+row.what+", ratio to bare system calls", p50, mostOverBare))
	}

	fmt.Fprint(w, "\n| Change of all classes | bare p50 | plugin p50 | goal | ratio p50 | goal |\n|---|--:|--:|--:|--:|--:|\n")
	for _, row := range m.reloads {
		took, p50 := percentile(row.node, 50), ratio(row.node, row.bare, 50)
		what := "change of all classes, " + row.what
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.2f | %s |\n", row.what, millis(percentile(row.bare, 50)), millis(took),
			v.on(what+", in seconds", took.Seconds(), mostReloadTime), p50, v.on(what+", ratio to bare writes", p50, mostReload))
	}

	fmt.Fprint(w, "\n| Objects that a hook allocates, without NRI | cgroup v1 | cgroup v2 |\n|---|--:|--:|\n")
	for _, row := range []struct {
		what   string
		v1, v2 float64
	}{
		{createNothing, m.v1.createNothing, m.v2.createNothing},
		{createAsked, m.v1.createClass, m.v2.createClass},
		{startAsked, m.v1.startClass, m.v2.startClass},
	} {
		fmt.Fprintf(w, "| %s | %.0f | %.0f |\n", row.what, row.v1, row.v2)
	}
}

// processTables writes what the plugin's process uses.
func (m *measurements) processTables(w io.Writer, o options, v *verdicts) {
	fmt.Fprint(w, "\n| CPU time of the process for | idle | plugin | ratio |\n|---|--:|--:|--:|\n")
	for _, what := range []string{creation, synchronize} {
		base, plugin := m.sides[idleOne].cpu[what], m.sides[ours].cpu[what]
		fmt.Fprintf(w, "| %s | %s | %s | %.2f |\n", what, micros(base), micros(plugin), float64(plugin)/float64(base))
	}

	fmt.Fprintf(w, "| %s | | %s | |\n", scrape, micros(m.sides[monitoring].cpu[scrape]))

	fmt.Fprintf(w, "\n| With %d containers | resident | goal | peak | CPU while nothing happens | goal |\n|---|--:|--:|--:|--:|--:|\n", o.many)
	for _, row := range []struct {
		what, side  string
		memory, cpu float64
	}{
		{"qos-nri-plugin", ours, mostMemory, mostCPU},
		{"qos-nri-plugin that monitors all of them", monitoring, mostMemory, mostCPU},
		{"qos-nri-plugin that also records and judges", everything, m.sides[ours].now + mostMemoryOfAll, mostCPUOfAll},
		{"idle plugin", idleOne, 0, 0},
	} {
		s := m.sides[row.side]
		cpu := 100 * s.cpu[rest].Seconds() / o.rest.Seconds()
		memoryGoal := v.on(row.what+", resident memory in MiB", s.now, row.memory)
		cpuGoal := v.on(row.what+", % of a CPU while nothing happens", cpu, row.cpu)
		fmt.Fprintf(w, "| %s | %.1f MiB | %s | %.1f MiB | %.2f %% | %s |\n", row.what, s.now, memoryGoal, s.most, cpu, cpuGoal)
	}

	fmt.Fprint(w, "\n| Pods that came and went | resident | goal | open files | threads |\n|--:|--:|--:|--:|--:|\n")
	fmt.Fprintf(w, "| %d | %.1f MiB |  | %d | %d |\n", o.churned/10, m.early.memory, m.early.files, m.early.threads)
	growth := m.late.memory - m.early.memory
	fmt.Fprintf(w, "| %d | %.1f MiB | %s | %d | %d |\n", o.churned, m.late.memory,
		v.on("growth of resident memory in MiB while pods come and go", growth, mostGrowth), m.late.files, m.late.threads)
	v.on("growth of open files while pods come and go", float64(m.late.files-m.early.files), mostNewFiles)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }
