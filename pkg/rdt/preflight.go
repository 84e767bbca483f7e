// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNoCLOSID is for more classes than the CPU has room for.
var ErrNoCLOSID = errors.New("out of CLOSIDs")

// ErrExclusive is for a mask that overlaps the cache of a group that shares with nobody.
var ErrExclusive = errors.New("overlaps an exclusive group")

// preflight resolves the configuration for the machine and says everything that the kernel would refuse, without asking it.
// reclaim are groups to remove first, for their CLOSIDs.
func preflight(config *Config, m *machine, draining func(group string) bool) (resolution *Resolution, reclaim []string, err error) {
	resolution, err = Resolve(config, m.info)
	if err != nil {
		return nil, nil, err
	}
	reclaim, closidErr := m.reclaim(resolution.Groups, draining)
	return resolution, reclaim, errors.Join(closidErr, m.exclusiveOverlaps(resolution.Groups))
}

// reclaim says which empty groups have to go so that there are enough CLOSIDs: orphans first, then those that drain.
func (m *machine) reclaim(wanted map[string]Schemata, draining func(group string) bool) ([]string, error) {
	missing := 0
	for name := range wanted {
		if _, ok := m.groups[name]; !ok {
			missing++
		}
	}
	short := missing - (m.info.CLOSIDs - m.closids())
	if short <= 0 {
		return nil, nil
	}
	surplus := m.surplus(wanted)
	slices.SortStableFunc(surplus, func(a, b string) int { return cmp.Compare(rank(draining(a)), rank(draining(b))) })
	surplus = slices.DeleteFunc(surplus, func(name string) bool { return !m.groups[name].empty || m.groups[name].mode != "shareable" })
	if len(surplus) < short {
		return nil, m.noCLOSID(wanted, short-len(surplus))
	}
	return surplus[:short], nil
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// surplus are our groups that no class has.
func (m *machine) surplus(wanted map[string]Schemata) []string {
	return m.names(func(name string) bool {
		_, ok := wanted[name]
		return isOurs(name) && !ok
	})
}

func (m *machine) noCLOSID(wanted map[string]Schemata, short int) error {
	named := len(slices.DeleteFunc(slices.Collect(maps.Keys(wanted)), func(name string) bool { return name == rootGroup }))
	text := fmt.Sprintf("%d classes are %d too many: the CPU has %d CLOSIDs, of which resctrl's root group has 1", named, short, m.info.CLOSIDs)
	if foreign := m.foreign(); len(foreign) > 0 {
		text += fmt.Sprintf(", groups of others (%s) have %d", strings.Join(foreign, ", "), len(foreign))
	}
	if busy := m.surplus(wanted); len(busy) > 0 {
		text += fmt.Sprintf(", groups of former classes that are in use (%s) have %d", strings.Join(busy, ", "), len(busy))
	}
	return fmt.Errorf("%s; remove classes, or those groups: %w", text, ErrNoCLOSID)
}

// exclusiveOverlaps finds masks that the kernel would refuse for the sake of groups that we do not change.
func (m *machine) exclusiveOverlaps(wanted map[string]Schemata) error {
	var problems []error
	exclusive := m.names(func(name string) bool {
		_, ok := wanted[name]
		return !ok && m.groups[name].exclusive()
	})
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		for _, other := range exclusive {
			for _, clash := range overlaps(wanted[name], m.groups[other].schemata) {
				problem := fmt.Sprintf("%s overlaps group %s, whose mode is %s; leave it out, or make that group shareable",
					clash, other, m.groups[other].mode)
				problems = append(problems, &ConfigError{Of: "class", Name: classOf(name), Problem: problem, Err: ErrExclusive})
			}
		}
	}
	return errors.Join(problems...)
}

// overlaps describes where two groups have the same part of a cache; code and data are in the same cache.
func overlaps(a, b Schemata) []string {
	var found []string
	for _, schema := range slices.Sorted(maps.Keys(a)) {
		for _, other := range slices.Sorted(maps.Keys(b)) {
			if schema.Level() == "" || schema.Level() != other.Level() {
				continue
			}
			for _, id := range slices.Sorted(maps.Keys(a[schema])) {
				if common := a[schema][id] & b[other][id]; common != 0 {
					found = append(found, fmt.Sprintf("%s %d: mask %#x (bits %#x)", schema, id, a[schema][id], common))
				}
			}
		}
	}
	return found
}

// classOf is the class of one of our groups, in the words of a class file.
func classOf(group string) string {
	if group == rootGroup {
		return rootClass
	}
	return strings.TrimPrefix(group, GroupPrefix)
}
