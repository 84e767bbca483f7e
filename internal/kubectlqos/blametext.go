// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

// suffererLines describes a container and its findings.
func suffererLines(s *reports.Sufferer, in *reports.Blame) []string {
	lines := []string{fmt.Sprintf("%s/%s container %s on node %s", s.Namespace, s.Pod, s.Name, s.Node)}
	if len(s.Findings) == 0 {
		return append(lines, "  did not wait more than otherwise "+between(in.From, in.To))
	}
	for i := range s.Findings {
		lines = append(lines, findingLines(&s.Findings[i])...)
	}
	return lines
}

func findingLines(f *reports.Finding) []string {
	lines := []string{"  " + between(f.From, f.To) + " " + findingText(f)}
	for i := range f.Own {
		lines = append(lines, "    itself: "+ownText(&f.Own[i]))
	}
	if len(f.Culprits) > 0 {
		lines = append(lines, "    at the same time (a correlation, and no proof):")
	}
	for i := range f.Culprits {
		c := &f.Culprits[i]
		lines = append(lines, fmt.Sprintf("    %d. %s/%s container %s %s (%.0f%% of the increase, correlation %.2f)", i+1, c.Namespace, c.Pod, c.Name,
			useText(c.Use), 100*c.Share, c.Correlation), "       "+remedy(c))
	}
	if len(f.Own)+len(f.Culprits) == 0 {
		text := "    nobody is named: no container used more of the same resource at the same time; look at the host and at the device"
		if f.Always {
			text = "    nobody is named: there is no time without waiting to compare with"
		}
		lines = append(lines, text)
	}
	return lines
}

// findingText describes the waiting or the loss of the container.
func findingText(f *reports.Finding) string {
	what := map[reports.Kind]string{reports.IO: "I/O", reports.MemoryUse: "memory", reports.CPU: "a CPU"}[f.Kind]
	switch {
	case f.Kind == reports.Bandwidth:
		return fmt.Sprintf("transferred %s for each second of CPU time, otherwise %s (cache %s)", tables.Decimal(f.During), tables.Decimal(f.Before), f.Part)
	case f.Kind == reports.Cache:
		return fmt.Sprintf("had %s of cache %s, otherwise %s", tables.Decimal(f.During), f.Part, tables.Decimal(f.Before))
	case f.Always:
		return fmt.Sprintf("waited for %s %.0f%% of the time, in the whole history", cmp.Or(what, string(f.Kind)), 100*f.During)
	}
	return fmt.Sprintf("waited for %s %.0f%% of the time, otherwise %.0f%%", cmp.Or(what, string(f.Kind)), 100*f.During, 100*f.Before)
}

func ownText(o *reports.Own) string {
	whose := "its own"
	if o.Pod {
		whose = "its pod's"
	}
	switch o.Reason {
	case reports.OwnThrottled:
		return fmt.Sprintf("throttled by %s CPU limit %.0f%% of the time, otherwise %.0f%%; raise the limit", whose, 100*o.During, 100*o.Before)
	case reports.OwnMemoryLimit:
		limit := map[string]string{"memory_high_events_total": "memory.high"}[o.Measure]
		return fmt.Sprintf("reached %s %s %s times a second; raise the limit", whose, cmp.Or(limit, "memory limit"), tables.Decimal(o.During))
	case reports.OwnClassLimit:
		use := verb(o.Use, o.During)
		if o.Pod {
			use = "its pod " + use
		}
		return fmt.Sprintf("%s, and %s class allows %s", use, whose, amount(o.Measure, o.Limit))
	}
	return useText(o.Use)
}

func useText(u reports.Use) string {
	return verb(u, u.During) + ", otherwise " + amount(u.Measure, u.Before)
}

// verb describes the use of a container, e.g. "wrote 380M/s to sda".
func verb(u reports.Use, value float64) string {
	of := amount(u.Measure, value)
	switch u.Measure {
	case "fs_reads_bytes_total", "fs_reads_total":
		return fmt.Sprintf("read %s from %s", of, u.Part)
	case "fs_writes_bytes_total", "fs_writes_total":
		return fmt.Sprintf("wrote %s to %s", of, u.Part)
	case "memory_bytes":
		return fmt.Sprintf("had %s of memory", of)
	case "memory_refaults_total":
		return fmt.Sprintf("read back %s that had been reclaimed", of)
	case "cpu_usage_seconds_total":
		return fmt.Sprintf("used %s", of)
	case "memory_bandwidth_bytes_total":
		return fmt.Sprintf("transferred %s at cache %s", of, u.Part)
	case "llc_occupancy_bytes":
		return fmt.Sprintf("had %s of cache %s", of, u.Part)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", u.Measure, u.Part, of))
}

// amount formats a value with the unit of the metric `name`.
func amount(name string, value float64) string {
	text := tables.Decimal(value)
	switch name {
	case "fs_reads_total", "fs_writes_total":
		return text + " operations/s"
	case "memory_refaults_total":
		return text + " pages/s"
	case "cpu_usage_seconds_total":
		return text + " CPUs"
	}
	if strings.HasSuffix(name, "_total") {
		return text + "/s"
	}
	return text
}

// remedy describes the smallest change that would help.
func remedy(c *reports.Culprit) string {
	to := c.Suggestion
	if c.Ended {
		return "it does not run any more"
	}
	if to == nil {
		return "no class that it can have on this node limits this use"
	}
	allows := fmt.Sprintf("class %s of %s, whose %s is %s", to.Class, to.Resource, to.Name, amount(c.Measure, to.Bound))
	if !to.Mutable {
		return fmt.Sprintf("would help: %s; request it for the pod, and recreate the pod", allows)
	}
	of := "-c " + c.Name
	if to.Pod {
		of = "--pod"
	}
	return fmt.Sprintf("would help: %s: kubectl qos set %s -n %s %s %s=%s", allows, c.Pod, c.Namespace, of, to.Resource, to.Class)
}

// between formats an interval. All times are UTC.
func between(from, to time.Time) string {
	const clock = "15:04:05"
	return "from " + from.UTC().Format(clock) + " to " + to.UTC().Format(clock) + " UTC"
}
