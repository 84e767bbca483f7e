// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Count sets the text in the file of a group's counter, e.g. "mbm_total_bytes". `group` is the path of the group below the
// mount point. For a control group, the file shows the sum of the numbers of the group and of its monitoring groups. If
// one of them is not a number, such as "Unavailable", the sum does not include it. Count panics if the group does not
// exist, because this is an error in the test. For energy and activity, `cache` is the number of a package.
func (f *FS) Count(group string, cache int, counter, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g, rest, err := f.find(path.Join(MountPoint, group))
	if err != nil || len(rest) > 0 {
		panic("no resctrl group " + group)
	}
	if g.counts == nil {
		g.counts = map[string]string{}
	}
	g.counts[counterFile(cache, counter)] = text
}

func counterFile(cache int, counter string) string {
	if slices.Contains(telemetryEvents(), counter) {
		return fmt.Sprintf("mon_data/mon_PERF_PKG_%02d/%s", cache, counter)
	}
	return fmt.Sprintf("mon_data/mon_L3_%02d/%s", cache, counter)
}

// telemetryEvents returns the events of PERF_PKG_MON, as intel_aet_get_events in arch/x86/kernel/cpu/resctrl/intel_aet.c has them.
func telemetryEvents() []string { return []string{"core_energy", "activity"} }

// initialCount is the first value of a counter. The kernel does not reset telemetry: a new group begins with the value
// of an earlier group with the same RMID.
func initialCount(file string) string {
	if strings.HasPrefix(file, "mon_data/mon_PERF_PKG") {
		return "5.000000"
	}
	return "0"
}

// counters returns the files below mon_data of each group.
func (f *FS) counters() (files []string) {
	if f.spec.RMIDs == 0 {
		return nil
	}
	for _, id := range f.monitored() {
		for _, counter := range []string{"llc_occupancy", "mbm_total_bytes", "mbm_local_bytes"} {
			files = append(files, counterFile(id, counter))
		}
	}
	for _, id := range f.online(f.spec.Domains) {
		for _, event := range telemetryEvents() {
			if f.spec.TelemetryRMIDs > 0 {
				files = append(files, counterFile(id, event))
			}
		}
	}
	return files
}

// monitored returns the IDs of the last level caches.
func (f *FS) monitored() []int {
	if f.spec.L3 == nil {
		return f.online(f.spec.Domains)
	}
	return f.online(f.spec.L3.domains(f.spec))
}

// listCounters lists mon_data or a directory in it.
func (f *FS) listCounters(dir string) ([]string, error) {
	var names []string
	for _, file := range f.counters() {
		rest, below := strings.CutPrefix(file, dir+"/")
		name, _, _ := strings.Cut(rest, "/")
		switch {
		case file == dir:
			return nil, syscall.ENOTDIR
		case below && (len(names) == 0 || names[len(names)-1] != name):
			names = append(names, name)
		}
	}

	if len(names) == 0 && dir != "mon_data" {
		return nil, syscall.ENOENT
	}

	return names, nil
}

// count simulates mon_event_count and rdtgroup_mondata_show. These functions are in monitor.c and ctrlmondata.c
// of fs/resctrl or, in Linux 6.12, of arch/x86/kernel/cpu/resctrl. The result is an error text only if the counters of the
// group and of its monitoring groups all have errors.
func (f *FS) count(g *group, file string) string {
	var sum float64
	decimals, shown := 0, ""
	if strings.HasPrefix(file, "mon_data/mon_PERF_PKG") {
		decimals = 6
	}
	for _, counted := range append(slices.Collect(maps.Values(g.mons)), g) {
		if f.unassigned(counted, file) {
			shown = cmp.Or(shown, "Unassigned")
			continue
		}
		number, err := strconv.ParseFloat(cmp.Or(counted.counts[file], initialCount(file)), 64)
		switch {
		case err == nil:
			sum += number
			shown = strconv.FormatFloat(sum, 'f', decimals, 64)
		case shown == "" || shown == "Unassigned":
			shown = counted.counts[file]
		}
	}
	return shown
}
