// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Event is what a counter counts. It is the name of a file in mon_data/mon_L3_* (Documentation/filesystems/resctrl.rst).
type Event string

const (
	// LLCOccupancy is the part of a last level cache that a group occupies now, in bytes.
	LLCOccupancy Event = "llc_occupancy"
	// MBMTotal has the bytes that a group has transferred between a last level cache and memory.
	MBMTotal Event = "mbm_total_bytes"
	// MBMLocal has the bytes that a group has transferred between a last level cache and the memory of the same NUMA node.
	MBMLocal Event = "mbm_local_bytes"
)

// Counter is a counter of a group. Cache is the ID of the last level cache.
type Counter struct {
	Event Event
	Cache int
}

// Counters has values in bytes. It lacks the counters that the CPU lacks, and those that the kernel cannot read now.
type Counters map[Counter]uint64

// Counters reads the counters of a group. Those of a control group include those of its monitoring groups. The result is
// nil if there is no such group, or if the CPU cannot monitor caches. With an error, the result has the counters that could
// be read.
func (t Tree) Counters(group string) (Counters, error) {
	caches, err := t.monitoredCaches(group)
	if err != nil {
		return nil, err
	}
	return t.countersOf(group, caches)
}

// CountersOfParts reads the counters of the monitoring groups of a control group, by directory name. It leaves out
// groups that are removed meanwhile.
func (t Tree) CountersOfParts(ctx context.Context, control string) (map[string]Counters, error) {
	names, err := t.MonitoringGroups(control)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	caches, err := t.monitoredCaches(control)
	if err != nil {
		return nil, err
	}

	parts := map[string]Counters{}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if counters, _ := t.countersOf(MonitoringGroup(control, name), caches); counters != nil {
			parts[name] = counters
		}
	}
	return parts, nil
}

// monitoredCaches returns the names of the directories with the counters of a group. These names are the same in all
// groups. The result is empty if there is no such group, or if the CPU cannot monitor caches.
func (t Tree) monitoredCaches(group string) (caches []string, err error) {
	names, err := t.host.ReadDir(t.path(group, "mon_data"))
	if err != nil && !NotExist(err) {
		return nil, fmt.Errorf("%s: list the monitored caches: %w", Describe(group), err)
	}
	for _, name := range names {
		if _, isCache := cacheID(name); isCache { // other directories count something else, e.g. energy
			caches = append(caches, name)
		}
	}
	return caches, nil
}

func cacheID(dir string) (id int, isCache bool) {
	text, isL3 := strings.CutPrefix(dir, "mon_L3_")
	id, err := strconv.Atoi(text)
	return id, isL3 && err == nil
}

// countersOf reads the counters of a group in some directories below mon_data. The result is nil if there is no such group.
func (t Tree) countersOf(group string, caches []string) (counters Counters, err error) {
	var problems []error
	for _, cache := range caches {
		id, _ := cacheID(cache)
		for _, event := range []Event{LLCOccupancy, MBMTotal, MBMLocal} {
			data, err := t.host.ReadFile(t.path(group, "mon_data", cache, string(event)))
			if NotExist(err) { // the CPU may lack a counter, and a cache disappears with its CPUs
				continue
			}
			if counters == nil {
				counters = Counters{}
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", Describe(group), err))
			} else if value, ok := ParseCounter(data); ok {
				counters[Counter{event, id}] = value
			}
		}
	}
	return counters, errors.Join(problems...)
}

// Unassigned reports whether the hardware lacks a counter of memory bandwidth for a group. On CPUs with assignable counters, the kernel
// gives none to some groups if there are more groups than counters, or after a change of info/L3_MON/mbm_assign_mode. Other CPUs have a
// counter for each group.
func (t Tree) Unassigned(group string) (bool, error) {
	assigned, err := t.Assignments(group)
	if err != nil || assigned != nil {
		return assigned.Lacks(MBMTotal), err
	}

	caches, err := t.monitoredCaches(group)
	for _, cache := range caches {
		if data, err := t.host.ReadFile(t.path(group, "mon_data", cache, string(MBMTotal))); err == nil && strings.TrimSpace(string(data)) == "Unassigned" {
			return true, nil
		}
	}
	return false, err
}

// ParseCounter reads a file in mon_data. ok is false if the file has no number: the kernel writes "Unavailable" while it has no
// value, "Unassigned" if no hardware counter is assigned, and "Error" if the hardware fails.
func ParseCounter(data []byte) (value uint64, ok bool) {
	value, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	return value, err == nil
}
