// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// counter is a file in mon_data/mon_L3_*, and the measure that the file reports (Documentation/filesystems/resctrl.rst).
type counter struct {
	file    string
	measure classes.Measure
}

// counters returns all counters. The parameter what names the measured thing in help texts, e.g. "a class".
func counters(what string) []counter {
	const cache = "cache_id"
	return []counter{
		{"llc_occupancy", classes.Measure{Name: "llc_occupancy_bytes", Part: cache, Help: "Bytes of a last level cache that " + what + " occupies."}},
		{"mbm_total_bytes", classes.Measure{Name: "memory_bandwidth_bytes_total", Part: cache,
			Help: "Bytes that " + what + " has transferred between a last level cache and memory."}},
		{"mbm_local_bytes", classes.Measure{Name: "memory_bandwidth_local_bytes_total", Part: cache,
			Help: "Bytes that " + what + " has transferred between a last level cache and the memory of the same NUMA node."}},
	}
}

func measures(what string) (all []classes.Measure) {
	for _, c := range counters(what) {
		all = append(all, c.measure)
	}
	return all
}

// MeasureClass implements classes.ClassMeter. The system default is the root group, which has all processes of the host that are in
// no other group. The reading is empty if the CPU cannot monitor caches, or if the class has no group.
func (b *Backend) MeasureClass(ctx context.Context, class string) (classes.Reading, error) {
	b.monitors.counting.RLock()
	defer b.monitors.counting.RUnlock()
	m := b.live.Load().machine
	if m == nil {
		return nil, nil
	}

	reading, err := m.measure(GroupOf(class))
	for _, id := range b.monitors.in(GroupOf(class)) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		part, _ := b.measureMonitor(m, GroupOf(class), id)
		maps.DeleteFunc(reading, func(series classes.Series, _ float64) bool {
			_, has := part[series]
			return !has && b.monitors.has(id, series) // the kernel has left it out of the sum
		})
	}
	b.monitors.addLeft(GroupOf(class), reading)
	return reading, err
}

// MeasureContainer implements classes.Monitor. Cumulative values count from the start of the container's monitoring.
func (b *Backend) MeasureContainer(_ context.Context, container classes.Holder) (classes.Reading, error) {
	b.monitors.counting.RLock()
	defer b.monitors.counting.RUnlock()
	m := b.live.Load().machine
	control, exists := b.monitors.of(container.ID)
	if m == nil || !exists {
		return nil, nil
	}
	return b.measureMonitor(m, control, container.ID)
}

func (b *Backend) measureMonitor(m *machine, control, id string) (classes.Reading, error) {
	reading, err := m.measure(monitorPath(control, id))
	b.monitors.count(id, reading)
	return reading, err
}

func (t tree) measure(group string) (classes.Reading, error) {
	domains, err := t.host.ReadDir(t.path(group, "mon_data"))
	if notExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: list the monitored caches: %w", groupText(group), err)
	}

	reading := classes.Reading{}
	var problems []error
	for _, domain := range domains {
		cache, isL3 := strings.CutPrefix(domain, "mon_L3_")
		id, err := strconv.Atoi(cache)
		if !isL3 || err != nil {
			continue // e.g. counters of energy
		}
		for _, c := range counters("") {
			data, err := t.host.ReadFile(t.path(group, "mon_data", domain, c.file))
			if err != nil && !notExist(err) { // the CPU may lack a counter, and a cache disappears with its CPUs
				problems = append(problems, fmt.Errorf("%s: %w", groupText(group), err))
			}
			if value, ok := ParseCounter(data); err == nil && ok {
				reading[classes.Series{Measure: c.measure.Name, Part: strconv.Itoa(id)}] = value
			}
		}
	}
	return reading, errors.Join(problems...)
}

// ParseCounter reads a file in mon_data. ok is false if the file has no number: the kernel writes "Unavailable" while it has no
// value, "Unassigned" if no hardware counter is assigned, and "Error" if the hardware fails.
func ParseCounter(data []byte) (value float64, ok bool) {
	number, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return float64(number), err == nil
}

// count records the values of a monitoring group. If reading lacks a series, count keeps the earlier value of this series.
func (m *monitors) count(id string, reading classes.Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted[id] == nil {
		m.counted[id] = classes.Reading{}
	}
	maps.Copy(m.counted[id], reading)
}

// has reports whether a series of a monitoring group has been counted.
func (m *monitors) has(id string, series classes.Series) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, counted := m.counted[id][series]
	return counted
}

// leave adds the last cumulative values of a monitoring group to m.left[control]. sign is 1 if the group leaves
// control, -1 if it joins.
func (m *monitors) leave(control, id string, sign float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left[control] == nil {
		m.left[control] = classes.Reading{}
	}
	for series, value := range m.counted[id] {
		if series.Cumulative() {
			m.left[control][series] += sign * value
		}
	}
}

// addLeft adds m.left[control], the counts of former monitoring groups of a control group, to the control group's reading.
func (m *monitors) addLeft(control string, reading classes.Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for series := range reading {
		reading[series] += m.left[control][series]
	}
}
