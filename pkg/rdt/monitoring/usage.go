// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"maps"
	"strconv"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// unmonitored is the measure of containers that are not monitored. Its part is the reason.
const unmonitored = "unmonitored"

// These are the names of measures.
const (
	bandwidthTotal = "memory_bandwidth_bytes_total" // all transfers of a last level cache
	energy         = "core_joules_total"            // as kepler_container_core_joules_total of Kepler
	activity       = "core_activity_farads_total"
)

// Measures returns the measure of each counter. The parameter `what` is the subject of the help texts, e.g. "a class".
func Measures(what string) []classes.Measure {
	const cache, pkg = "cache_id", "package"
	return []classes.Measure{
		{Name: "llc_occupancy_bytes", Part: cache, Help: "Bytes of a last level cache that " + what + " occupies."},
		{Name: bandwidthTotal, Part: cache,
			Help: "Bytes that " + what + " has transferred between a last level cache and memory."},
		{Name: "memory_bandwidth_local_bytes_total", Part: cache,
			Help: "Bytes that " + what + " has transferred between a last level cache and the memory of the same NUMA node."},
		{Name: energy, Part: pkg, Help: "Joules that the cores of a CPU package have used while they ran " + what + "."},
		{Name: activity, Part: pkg, Help: "Farads that the cores of a CPU package have switched while they ran " + what +
			": its work, whatever the frequency of the cores."},
	}
}

// MeasuresOfContainers returns the measures of containers.
func MeasuresOfContainers() []classes.Measure {
	return append(Measures("a container"), classes.Measure{Name: unmonitored, Part: "reason",
		Help: "1 for a container that is to be monitored and is not, with the reason."}, classes.Measure{Name: observedSeconds, Part: "cache_id",
		Help: "Seconds in which a counter has counted the bytes that a container has transferred between a last level cache and memory, " +
			"if containers have counters in turn."})
}

// readingOf returns the values of counters as a reading. It is nil if `counters` is nil.
func readingOf(counters resctrl.Counters) classes.Reading {
	if counters == nil {
		return nil
	}

	reading := classes.Reading{}
	for counter, value := range counters {
		reading[SeriesOf(counter)] = value
	}
	return reading
}

// SeriesOf returns the series to which the values of a counter belong.
func SeriesOf(counter resctrl.Counter) classes.Series {
	series := classes.Series{Part: strconv.Itoa(counter.Domain)}
	switch counter.Event {
	case resctrl.LLCOccupancy:
		series.Measure = "llc_occupancy_bytes"
	case resctrl.MBMTotal:
		series.Measure = bandwidthTotal
	case resctrl.MBMLocal:
		series.Measure = "memory_bandwidth_local_bytes_total"
	case resctrl.CoreEnergy:
		series.Measure = energy
	case resctrl.CoreActivity:
		series.Measure = activity
	}
	return series
}

// measure reads the selected counters of a group. The reading is nil if there is no such group, or if the CPU has none of them.
func (m *Machine) measure(group string) (classes.Reading, error) {
	counters, err := m.Counters(group, m.Selection.Events())
	return readingOf(counters), err
}

// firstReading returns the first values of a new group. Most counters begin at 0. firstReading reads the others,
// because they begin with what an earlier group has used.
func firstReading(t resctrl.Tree, selection Selection, group string) classes.Reading {
	first := classes.Reading{}
	var others []resctrl.Event
	for _, event := range selection.Events() {
		if !event.BeginsAtZero() {
			others = append(others, event)
		}
	}
	if len(others) == 0 {
		return first
	}
	counters, _ := t.Counters(group, others)
	maps.Copy(first, readingOf(counters))
	return first
}

// hasBandwidth reports whether a reading has the memory bandwidth of a cache.
func hasBandwidth(reading classes.Reading) bool {
	for series := range reading {
		if series.Measure == bandwidthTotal {
			return true
		}
	}
	return false
}

// MeasureClass implements classes.ClassMeter. The system default is the root group, which has all processes of the host
// that are in no other group. The reading is empty if the CPU cannot monitor caches, or if the class has no group.
//
// Cumulative values of a class count from the first creation of its group. If this backend has not created the group,
// they count from the first reading. Cumulative values of a container count from the start of its monitoring, or from
// the first reading if its monitoring group existed before this backend. They never decrease while the container runs.
func (cs *Containers) MeasureClass(ctx context.Context, class string) (classes.ClassReading, error) {
	cs.monitors.counting.RLock()
	defer cs.monitors.counting.RUnlock()
	m, control := cs.machine.Load(), groups.Of(class)
	if m == nil {
		return classes.ClassReading{}, nil
	}

	reading, err := cs.measureClass(ctx, m, control)
	for id, raw := range reading.Containers {
		if s, _ := cs.monitors.state(id); !hasBandwidth(raw) || s.missing != nil {
			cs.lookForCounter(m, id, control)
		}
		reading.Containers[id] = cs.used(id, raw)
	}
	for id, why := range cs.monitors.unmonitored(control) {
		if reading.Containers[id] == nil {
			reading.Containers[id] = classes.Reading{}
		}
		reading.Containers[id][classes.Series{Measure: unmonitored, Part: why.name}] = 1
	}
	return reading, err
}

// measureClass reads a control group with its monitoring groups, and adds the growth of their counters to the totals. The readings of
// containers in the result have the kernel's values instead of totals. The caller holds monitors.counting.
func (cs *Containers) measureClass(ctx context.Context, m *Machine, control string) (classes.ClassReading, error) {
	group := cs.counts.of(control)
	shown, err := m.measure(control)
	reading := classes.ClassReading{Containers: map[string]classes.Reading{}}
	if len(shown) == 0 {
		return reading, err
	}
	counters, partsErr := m.CountersOfParts(ctx, control, m.Selection.Events()) // read after the group itself, as counts.add requires
	if partsErr != nil {
		return reading, partsErr
	}
	parts := map[string]classes.Reading{}
	for name, values := range counters {
		parts[name] = readingOf(values)
	}
	return classes.ClassReading{Class: cs.counts.add(control, group, shown, parts), Containers: cs.monitors.containers(control, parts)}, err
}
