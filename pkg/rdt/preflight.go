// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ErrNoCLOSID is the error for a configuration with more classes than the CPU has CLOSIDs for.
var ErrNoCLOSID = errors.New("out of CLOSIDs")

// ErrExclusive is the error for a mask that overlaps the cache of an exclusive group.
var ErrExclusive = errors.New("overlaps an exclusive group")

// orWrongMount returns one *Unavailable error if all problems in `err` are of kind ErrBandwidthUnit, and otherwise `err`. All these problems
// have one cause, a wrong mount option of resctrl: a configuration in MBps needs the mount option mba_MBps, and one in per cent needs a
// mount without this option.
func orWrongMount(err error, info resctrl.Info) error {
	var places []string
	for _, problem := range classes.SplitErrors(err) {
		at := (*ConfigError)(nil)
		if !errors.As(problem, &at) || !errors.Is(problem, ErrBandwidthUnit) {
			return err
		}
		places = append(places, at.place())
	}
	where := strings.Join(places, ", ")
	if info.Bandwidth.Unit == resctrl.MBps {
		return unavailable(resctrl.WrongMountOptions, "resctrl is mounted with mba_MBps, but the configuration has memory bandwidth in per cent only (%s); "+
			"also give it in MBps, or mount resctrl without mba_MBps", where)
	}
	return unavailable(resctrl.WrongMountOptions, "resctrl is mounted without mba_MBps, but the configuration has memory bandwidth in MBps only (%s); "+
		"also give it in per cent, or mount resctrl with -o mba_MBps, which only CPUs of Intel have", where)
}

// configurable returns the schemata of the groups that a configuration can change: the managed groups and the root group.
func (m *machine) configurable() map[string]resctrl.Schemata {
	result := map[string]resctrl.Schemata{}
	for name, group := range m.groups {
		if name == resctrl.Root || groups.IsManaged(name) {
			result[name] = group.Schemata
		}
	}
	return result
}

// surplus returns the managed groups that are not in `wanted`.
func (m *machine) surplus(wanted map[string]resctrl.Schemata) []string {
	return m.names(func(name string) bool {
		_, ok := wanted[name]
		return groups.IsManaged(name) && !ok
	})
}

// reclaim returns the empty groups that must be removed to free enough CLOSIDs for the wanted groups.
func (m *machine) reclaim(wanted map[string]resctrl.Schemata) ([]string, error) {
	named := len(wanted)
	if _, ok := wanted[resctrl.Root]; ok {
		named--
	}
	surplus := m.surplus(wanted)
	empty := slices.DeleteFunc(slices.Clone(surplus), func(name string) bool { return !m.removable(name) })
	busy := slices.DeleteFunc(surplus, m.removable)

	uses, used := m.closidUses(busy)
	limit, limited := m.limit()
	if short := named + used - limit; short > 0 {
		return nil, fmt.Errorf("%d classes are %d too many: the CPU has %s, of which %s; remove classes, or resctrl groups of other programs: %w",
			named, short, limited, strings.Join(uses, ", "), ErrNoCLOSID)
	}
	return empty[:max(0, named+used+len(empty)-limit)], nil
}

// limit returns the maximum number of control groups, and what limits it: each group needs a CLOSID and, if the CPU can monitor, an RMID.
func (m *machine) limit() (n int, by string) {
	if m.fewRMIDs() {
		return m.info.RMIDs, fmt.Sprintf("%d RMIDs (info/%s/num_rmids)", m.info.RMIDs, m.info.FewestRMIDs)
	}
	return m.info.CLOSIDs, fmt.Sprintf("%d CLOSIDs", m.info.CLOSIDs)
}

// fewRMIDs reports whether the RMIDs are what limits the number of groups. Device traffic needs a CLOSID, and no RMID.
func (m *machine) fewRMIDs() bool {
	return m.info.RMIDs > 0 && m.info.RMIDs+m.info.DeviceCLOSIDs < m.info.CLOSIDs
}

// removable reports whether a group of a former class can be removed to free its CLOSID.
func (m *machine) removable(name string) bool {
	return m.groups[name].empty && m.groups[name].Mode == resctrl.Shareable
}

// exclusiveOverlaps returns an error for each wanted mask that overlaps an exclusive group which the configuration does
// not change. The kernel would refuse such a mask.
func (m *machine) exclusiveOverlaps(wanted map[string]resctrl.Schemata) error {
	exclusive := m.names(func(name string) bool {
		_, ok := wanted[name]
		return !ok && m.groups[name].Exclusive()
	})

	var problems []error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		for _, other := range exclusive {
			for _, overlap := range overlaps(wanted[name], m.groups[other].Schemata) {
				problem := fmt.Sprintf("%s overlaps group %s, whose mode is %s; "+
					"remove this cache share from the class, or set the mode of group %s to shareable", overlap, other, m.groups[other].Mode, other)
				problems = append(problems, &ConfigError{Of: "class", Name: className(name), Problem: problem, Err: ErrExclusive})
			}
		}
	}
	return errors.Join(problems...)
}

// overlaps describes the parts of a cache that `a` and `b` both have. A code mask and a data mask overlap, too, because they
// divide the same cache.
func overlaps(a, b resctrl.Schemata) []string {
	var found []string
	for _, domain := range a.Domains() {
		for _, other := range b.Domains() {
			sameCache := domain.ID == other.ID && domain.Schema.Level() != "" && domain.Schema.Level() == other.Schema.Level()
			if common := a[domain] & b[other]; sameCache && common != 0 {
				found = append(found, fmt.Sprintf("%s: mask %#x (bits %#x)", domain, a[domain], common))
			}
		}
	}
	return found
}
