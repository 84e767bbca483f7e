// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// bandwidthEvents are the events that need a counter.
func bandwidthEvents() []string { return []string{"mbm_total_bytes", "mbm_local_bytes"} }

// assign simulates rdtgroup_assign_cntrs in fs/resctrl/monitor.c, which gives counters to a new group as long as there are free ones.
func (f *FS) assign(g *group) {
	for _, event := range bandwidthEvents() {
		for _, id := range f.monitored() {
			_ = f.assignOne(g, event, id)
		}
	}
}

// assignOne simulates rdtgroup_assign_cntr. The counter begins at 0 (resctrl_config_cntr).
func (f *FS) assignOne(g *group, event string, id int) error {
	file := counterFile(id, event)
	if f.spec.Counters == 0 || g.assigned[file] {
		return nil
	}
	if f.freeCounters(id) == 0 {
		f.live.reportf("Failed to allocate counter for %s in domain %d", event, id)
		return syscall.ENOSPC
	}
	if g.assigned == nil {
		g.assigned = map[string]bool{}
	}
	g.assigned[file] = true
	delete(g.counts, file)
	return nil
}

// freeCounters returns what info/L3_MON/available_mbm_cntrs shows for a domain.
func (f *FS) freeCounters(id int) int {
	free := f.spec.Counters
	for _, control := range f.live.control() {
		for _, g := range append(slices.Collect(maps.Values(control.mons)), control) {
			for _, event := range bandwidthEvents() {
				if g.assigned[counterFile(id, event)] {
					free--
				}
			}
		}
	}
	return free
}

// unassigned reports whether a file in mon_data has no counter.
func (f *FS) unassigned(g *group, file string) bool {
	return f.spec.Counters > 0 && strings.Contains(file, "/mon_L3_") && !strings.HasSuffix(file, "/llc_occupancy") && !g.assigned[file]
}

// assignments simulates mbm_L3_assignments_show.
func (f *FS) assignments(g *group) string {
	var text strings.Builder
	for _, event := range bandwidthEvents() {
		var domains []string
		for _, id := range f.monitored() {
			state := "_"
			if g.assigned[counterFile(id, event)] {
				state = "e"
			}
			domains = append(domains, fmt.Sprintf("%d=%s", id, state))
		}
		fmt.Fprintf(&text, "%s:%s\n", event, strings.Join(domains, ";"))
	}
	return text.String()
}

// writeAssignments simulates mbm_L3_assignments_write.
func (f *FS) writeAssignments(g *group, data string) error {
	f.live.status = ""
	for line := range strings.Lines(data) {
		event, domains, _ := strings.Cut(strings.TrimSpace(line), ":")
		if !slices.Contains(bandwidthEvents(), event) {
			f.live.reportf("Invalid event %s", event)
			return syscall.EINVAL
		}
		for entry := range strings.SplitSeq(domains, ";") {
			name, state, _ := strings.Cut(entry, "=")
			for _, id := range f.monitored() {
				if name != "*" && name != fmt.Sprint(id) {
					continue
				}
				if state == "_" {
					delete(g.assigned, counterFile(id, event))
				} else if err := f.assignOne(g, event, id); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// counterInfo returns the files below info/L3_MON that describe assignable counters.
func (f *FS) counterInfo() map[string]string {
	if f.spec.Counters == 0 {
		return nil
	}
	var all, free []string
	for _, id := range f.monitored() {
		all = append(all, fmt.Sprintf("%d=%d", id, f.spec.Counters))
		free = append(free, fmt.Sprintf("%d=%d", id, f.freeCounters(id)))
	}
	return map[string]string{
		"L3_MON/mbm_assign_mode": "[mbm_event]\ndefault\n", "L3_MON/mbm_assign_on_mkdir": "1\n",
		"L3_MON/num_mbm_cntrs": strings.Join(all, ";") + "\n", "L3_MON/available_mbm_cntrs": strings.Join(free, ";") + "\n",
	}
}
