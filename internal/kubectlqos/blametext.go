// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/tables"
)

// blamed is the answer of a node: the JSON form of qos.v1alpha1.BlameResponse, whose Go type would link gRPC.
type blamed struct {
	From       time.Time  `json:"from"`
	To         time.Time  `json:"to"`
	Sufferers  []sufferer `json:"sufferers"`
	Incomplete int        `json:"incompleteContainers"`
}

// sufferer is a container with the intervals in which it suffered. The JSON form is part of a node's answer and of the
// output of -o json.
type sufferer struct {
	Node      string         `json:"node"`
	Namespace string         `json:"namespace"`
	Pod       string         `json:"pod"`
	PodUID    string         `json:"podUid"`
	Container string         `json:"container"`
	Findings  []blameFinding `json:"findings"`
}

type blameFinding struct {
	Resource string         `json:"resource"`
	Part     string         `json:"part,omitempty"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Before   float64        `json:"before"`
	During   float64        `json:"during"`
	Always   bool           `json:"always"`
	Own      []ownCause     `json:"own,omitempty"`
	Culprits []blameCulprit `json:"culprits,omitempty"`
}

// blameUse has the use of a resource. Name is the name of a metric.
type blameUse struct {
	Name   string  `json:"name"`
	Part   string  `json:"part,omitempty"`
	Before float64 `json:"before"`
	During float64 `json:"during"`
}

type ownCause struct {
	blameUse `json:",inline"`
	Reason   string  `json:"reason"`
	Limit    float64 `json:"limit,omitempty"`
	Pod      bool    `json:"pod,omitempty"`
}

type blameCulprit struct {
	blameUse    `json:",inline"`
	Namespace   string           `json:"namespace"`
	Pod         string           `json:"pod"`
	PodUID      string           `json:"podUid"`
	Container   string           `json:"container"`
	Share       float64          `json:"share"`
	Correlation float64          `json:"correlation"`
	Ended       bool             `json:"ended"`
	Suggestion  *classSuggestion `json:"suggestion,omitempty"`
}

type classSuggestion struct {
	Resource string  `json:"resource"`
	Class    string  `json:"class"`
	Limit    string  `json:"limit"`
	Bound    float64 `json:"bound"`
	Mutable  bool    `json:"mutable"`
	Pod      bool    `json:"pod"`
}

// lines describes a container and its findings.
func (s *sufferer) lines(in *blamed) []string {
	lines := []string{fmt.Sprintf("%s/%s container %s on node %s", s.Namespace, s.Pod, s.Container, s.Node)}
	if len(s.Findings) == 0 {
		return append(lines, "  did not wait more than otherwise "+between(in.From, in.To))
	}
	for i := range s.Findings {
		lines = append(lines, s.Findings[i].lines()...)
	}
	return lines
}

func (f *blameFinding) lines() []string {
	lines := []string{"  " + between(f.From, f.To) + " " + f.text()}
	for i := range f.Own {
		lines = append(lines, "    itself: "+f.Own[i].text())
	}
	if len(f.Culprits) > 0 {
		lines = append(lines, "    at the same time (a correlation, and no proof):")
	}
	for i := range f.Culprits {
		c := &f.Culprits[i]
		lines = append(lines, fmt.Sprintf("    %d. %s/%s container %s %s (%.0f%% of what rose, correlation %.2f)", i+1, c.Namespace, c.Pod, c.Container,
			c.use(), 100*c.Share, c.Correlation), "       "+c.remedy())
	}
	if len(f.Own)+len(f.Culprits) == 0 {
		text := "    nobody is named: no container used more of the same resource with it; look at the host and at the device"
		if f.Always {
			text = "    nobody is named: there is no time without waiting to compare with"
		}
		lines = append(lines, text)
	}
	return lines
}

// text describes the waiting or the loss of the container.
func (f *blameFinding) text() string {
	what := map[string]string{"io": "I/O", "memory": "memory", "cpu": "a CPU"}[f.Resource]
	switch {
	case f.Resource == "memory-bandwidth":
		return fmt.Sprintf("transferred %s for each second of CPU time, otherwise %s (cache %s)", tables.Decimal(f.During), tables.Decimal(f.Before), f.Part)
	case f.Resource == "cache":
		return fmt.Sprintf("had %s of cache %s, otherwise %s", tables.Decimal(f.During), f.Part, tables.Decimal(f.Before))
	case f.Always:
		return fmt.Sprintf("waited for %s %.0f%% of the time, all the time", cmp.Or(what, f.Resource), 100*f.During)
	}
	return fmt.Sprintf("waited for %s %.0f%% of the time, otherwise %.0f%%", cmp.Or(what, f.Resource), 100*f.During, 100*f.Before)
}

func (o *ownCause) text() string {
	whose := "its own"
	if o.Pod {
		whose = "its pod's"
	}
	switch o.Reason {
	case "throttled":
		return fmt.Sprintf("throttled by %s CPU limit %.0f%% of the time, otherwise %.0f%%; raise the limit", whose, 100*o.During, 100*o.Before)
	case "memory-limit":
		limit := map[string]string{"memory_high_events_total": "memory.high"}[o.Name]
		return fmt.Sprintf("reached %s %s %s times a second; raise the limit", whose, cmp.Or(limit, "memory limit"), tables.Decimal(o.During))
	case "class-limit":
		use := o.verb(o.During)
		if o.Pod {
			use = "its pod " + use
		}
		return fmt.Sprintf("%s, and %s class allows %s", use, whose, amount(o.Name, o.Limit))
	}
	return o.use()
}

func (u *blameUse) use() string { return u.verb(u.During) + ", otherwise " + amount(u.Name, u.Before) }

// verb describes the use of a container, e.g. "wrote 380M/s to sda".
func (u *blameUse) verb(value float64) string {
	of := amount(u.Name, value)
	switch u.Name {
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
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", u.Name, u.Part, of))
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
func (c *blameCulprit) remedy() string {
	to := c.Suggestion
	if c.Ended {
		return "it does not run any more"
	}
	if to == nil {
		return "no class of this node that it can have limits this use"
	}
	allows := fmt.Sprintf("class %s of %s, whose %s is %s", to.Class, to.Resource, to.Limit, amount(c.Name, to.Bound))
	if !to.Mutable {
		return fmt.Sprintf("would help: %s; request it for the pod, and recreate the pod", allows)
	}
	of := "-c " + c.Container
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
