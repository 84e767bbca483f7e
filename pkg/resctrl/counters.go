// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Event is the event that a counter counts. It is the name of a file in mon_data/mon_L3_* or mon_data/mon_PERF_PKG_*
// (Documentation/filesystems/resctrl.rst).
type Event string

const (
	// LLCOccupancy is the part of a last level cache that a group occupies now, in bytes.
	LLCOccupancy Event = "llc_occupancy"
	// MBMTotal has the bytes that a group has transferred between a last level cache and memory.
	MBMTotal Event = "mbm_total_bytes"
	// MBMLocal has the bytes that a group has transferred between a last level cache and the memory of the same NUMA node.
	MBMLocal Event = "mbm_local_bytes"
	// CoreEnergy has the joules that the cores of a package have used while they ran threads of a group.
	CoreEnergy Event = "core_energy"
	// CoreActivity has the farads that these cores have switched. It depends on the work, and not on the frequency of the cores.
	CoreActivity Event = "activity"
)

// Feature returns the name of the directory below info/ that describes the event.
func (e Event) Feature() string {
	if e == CoreEnergy || e == CoreActivity {
		return telemetryInfo
	}
	return monitoringInfo
}

// BeginsAtZero reports whether the kernel counts from 0 for a new group. It does not reset telemetry (Linux 7.3), so that a new group
// begins with what an earlier group with the same RMID has used.
func (e Event) BeginsAtZero() bool { return e.Feature() == monitoringInfo }

// Counter is a counter of a group. Domain is the ID of a last level cache or, for energy and activity, of a package.
type Counter struct {
	Event  Event
	Domain int
}

// Counters has values in the units of the events. It lacks the counters that the CPU lacks, and those that the kernel cannot read now.
type Counters map[Counter]float64

// Counters reads the counters of a group for some events. Those of a control group include those of its monitoring groups. The result
// is nil if there is no such group, or if the CPU cannot monitor the events. With an error, the result has the counters that could be
// read.
func (t Tree) Counters(group string, events []Event) (Counters, error) {
	files, err := t.counterFiles(group, events)
	if err != nil {
		return nil, err
	}
	return t.countersOf(group, files)
}

// CountersOfParts reads the counters of the monitoring groups of a control group for some events, by directory name. It leaves out
// groups that are removed meanwhile.
func (t Tree) CountersOfParts(ctx context.Context, control string, events []Event) (map[string]Counters, error) {
	names, err := t.MonitoringGroups(control)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	files, err := t.counterFiles(control, events)
	if err != nil {
		return nil, err
	}

	parts := map[string]Counters{}
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if counters, _ := t.countersOf(MonitoringGroup(control, name), files); counters != nil {
			parts[name] = counters
		}
	}
	return parts, nil
}

// counterFile is the file of a counter below the directory mon_data of a group.
type counterFile struct {
	Counter
	path string
}

// counterFiles returns the files of a group that count some events. They are the same in all groups. The result is empty if there is no
// such group, or if the CPU cannot monitor the events.
func (t Tree) counterFiles(group string, events []Event) (files []counterFile, err error) {
	names, err := t.host.ReadDir(t.path(group, "mon_data"))
	if err != nil && !NotExist(err) {
		return nil, fmt.Errorf("%s: list the counters: %w", Describe(group), err)
	}
	for _, name := range names {
		for _, event := range events {
			if id, counts := event.domain(name); counts {
				files = append(files, counterFile{Counter{event, id}, path.Join(name, string(event))})
			}
		}
	}
	return files, nil
}

// domain returns the ID in the name of a directory below mon_data, e.g. "mon_L3_00". `ok` is false if this directory
// does not have the event.
func (e Event) domain(dir string) (id int, ok bool) {
	text, ok := strings.CutPrefix(dir, "mon_"+strings.TrimSuffix(e.Feature(), "MON"))
	id, err := strconv.Atoi(text)
	return id, ok && err == nil
}

// countersOf reads some files of a group. The result is nil if there is no such group.
func (t Tree) countersOf(group string, files []counterFile) (counters Counters, err error) {
	var problems []error
	dir := t.path(group, "mon_data")
	for _, file := range files {
		data, err := t.host.ReadFile(dir + "/" + file.path)
		if NotExist(err) { // the CPU may lack a counter, and a cache disappears with its CPUs
			continue
		}
		if counters == nil {
			counters = Counters{}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", Describe(group), err))
		} else if value, ok := ParseCounter(data); ok {
			counters[file.Counter] = value
		}
	}
	return counters, errors.Join(problems...)
}

// ParseCounter reads a file in mon_data. `ok` is false if the file has no number: the kernel writes "Unavailable" while
// it has no value, "Unassigned" if no hardware counter is assigned, and "Error" if the hardware fails. Energy and
// activity have decimal places.
func ParseCounter(data []byte) (value float64, ok bool) {
	text := strings.TrimSpace(string(data))
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil && strings.Trim(text, "0123456789.") == ""
}
