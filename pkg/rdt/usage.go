// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// counter is a file in mon_data/mon_L3_*, and the measure that the file reports (Documentation/filesystems/resctrl.rst).
type counter struct {
	file    string
	measure classes.Measure
}

// counters returns all counters. The parameter what is the subject of the help texts, e.g. "a class".
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

// MeasureClass implements classes.ClassMeter. The system default is the root group, which has all processes of the host
// that are in no other group. The reading is empty if the CPU cannot monitor caches, or if the class has no group.
//
// Cumulative values of a class count from the first creation of its group. If this backend has not created the group,
// they count from the first reading. Cumulative values of a container count from the start of its monitoring, or from
// the first reading if its monitoring group existed before this backend. They never decrease while the container runs.
func (b *Backend) MeasureClass(ctx context.Context, class string) (classes.ClassReading, error) {
	b.monitors.counting.RLock()
	defer b.monitors.counting.RUnlock()
	m, control := b.live.Load().machine, GroupOf(class)
	if m == nil {
		return classes.ClassReading{}, nil
	}

	group := b.counts.of(control)
	shown, err := m.measure(control)
	if len(shown) == 0 {
		return classes.ClassReading{}, err
	}
	parts, partsErr := m.measureParts(ctx, control) // read after the group itself, as counts.add requires
	if partsErr != nil {
		return classes.ClassReading{}, partsErr
	}

	reading := classes.ClassReading{Class: b.counts.add(control, group, shown, parts), Containers: b.monitors.containers(control, parts)}
	for id, raw := range reading.Containers {
		reading.Containers[id] = b.counts.used(id, raw)
	}
	return reading, err
}

// measureParts returns the readings of the monitoring groups in a control group, by directory name. The reading of a
// group is empty if none of its values can be read.
func (t tree) measureParts(ctx context.Context, control string) (map[string]classes.Reading, error) {
	names, err := t.host.ReadDir(t.path(control, "mon_groups"))
	if err != nil && !notExist(err) {
		return nil, fmt.Errorf("%s: list the monitoring groups: %w", groupText(control), err)
	}

	if len(names) == 0 {
		return nil, nil
	}
	caches, err := t.monitoredCaches(control)
	if err != nil {
		return nil, err
	}

	parts := map[string]classes.Reading{}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if reading, _ := t.measureCaches(path.Join(control, "mon_groups", name), caches); reading != nil { // it is nil if the group was removed meanwhile
			parts[name] = reading
		}
	}
	return parts, nil
}

func (t tree) measure(group string) (classes.Reading, error) {
	caches, err := t.monitoredCaches(group)
	if err != nil {
		return nil, err
	}
	return t.measureCaches(group, caches)
}

// monitoredCaches returns the names of the directories with the counters of a group. These names are the same in all
// groups. The result is empty if there is no such group, or if the CPU cannot monitor caches.
func (t tree) monitoredCaches(group string) (caches []string, err error) {
	names, err := t.host.ReadDir(t.path(group, "mon_data"))
	if err != nil && !notExist(err) {
		return nil, fmt.Errorf("%s: list the monitored caches: %w", groupText(group), err)
	}
	for _, name := range names {
		if _, isCache := cacheID(name); isCache { // other directories count something else, e.g. energy
			caches = append(caches, name)
		}
	}
	return caches, nil
}

func cacheID(dir string) (id string, isCache bool) {
	text, isL3 := strings.CutPrefix(dir, "mon_L3_")
	number, err := strconv.Atoi(text)
	return strconv.Itoa(number), isL3 && err == nil
}

// measureCaches reads the counters of a group. The reading is nil if there is no such group.
func (t tree) measureCaches(group string, caches []string) (reading classes.Reading, err error) {
	var problems []error
	for _, cache := range caches {
		id, _ := cacheID(cache)
		for _, c := range counters("") {
			data, err := t.host.ReadFile(t.path(group, "mon_data", cache, c.file))
			if notExist(err) { // the CPU may lack a counter, and a cache disappears with its CPUs
				continue
			}
			if reading == nil {
				reading = classes.Reading{}
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", groupText(group), err))
			} else if value, ok := ParseCounter(data); ok {
				reading[classes.Series{Measure: c.measure.Name, Part: id}] = value
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
