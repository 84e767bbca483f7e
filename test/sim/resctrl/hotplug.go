// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"maps"
	"slices"
	"strconv"
)

// Offline takes the CPUs of a cache offline, as domain_remove_cpu_ctrl in arch/x86/kernel/cpu/resctrl/core.c and
// resctrl_offline_mon_domain in fs/resctrl/rdtgroup.c do: the domain disappears with the values of all groups. `place`
// is the index of the domain in Spec.Domains. When the domain appears again, its counters begin at 0.
func (f *FS) Offline(place int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offline = append(f.offline, place)
	f.setDomains()
	for _, control := range f.live.control() {
		for _, g := range append(slices.Collect(maps.Values(control.mons)), control) {
			lost := func(file string) bool { return !slices.Contains(f.counters(), file) }
			maps.DeleteFunc(g.assigned, func(file string, _ bool) bool { return lost(file) })
			maps.DeleteFunc(g.counts, func(file, _ string) bool { return lost(file) })
		}
	}
}

// Online takes the CPUs of a cache online again, as domain_add_cpu_ctrl and domain_setup_ctrlval in
// arch/x86/kernel/cpu/resctrl/core.c do: in this domain, each group and the device traffic then have the whole
// resource.
func (f *FS) Online(place int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offline = slices.DeleteFunc(f.offline, func(other int) bool { return other == place })
	f.setDomains()
}

func (f *FS) setDomains() {
	for _, s := range f.live.schemas {
		before := s.domains
		s.domains = f.online(f.spec.Domains)
		if s.cache != nil {
			s.domains = f.online(s.cache.domains(f.spec))
		}
		for _, id := range s.domains {
			for closid := range s.values {
				if !slices.Contains(before, id) {
					s.values[closid][id] = s.full()
				}
			}
			if s.cache == f.spec.L3 && f.live.ioAlloc != nil && !slices.Contains(before, id) {
				f.live.ioAlloc[id] = strconv.FormatUint(s.full(), 16)
			}
		}
	}
}

// online returns the IDs of those domains that have CPUs.
func (f *FS) online(ids []int) (found []int) {
	for place, id := range ids {
		if !slices.Contains(f.offline, place) {
			found = append(found, id)
		}
	}
	return found
}
