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

func unavailable(reason resctrl.Reason, format string, args ...any) *classes.Unavailable {
	return &classes.Unavailable{Reason: string(reason), Message: fmt.Sprintf(format, args...)}
}

// asUnavailable returns an *classes.Unavailable in place of a *resctrl.Unavailable, and other errors as they are.
func asUnavailable(err error) error {
	found := (*resctrl.Unavailable)(nil)
	if !errors.As(err, &found) {
		return err
	}
	return unavailable(found.Reason, "%v", found)
}

func hasReason(err error, reason resctrl.Reason) bool {
	found := (*resctrl.Unavailable)(nil)
	return errors.As(err, &found) && found.Reason == reason
}

// group is a control group. `empty` is true for a managed group without tasks. It is always false for other groups.
type group struct {
	resctrl.Group
	empty bool
}

type machine struct {
	resctrl.Tree
	info resctrl.Info
	// groups has all control groups by name. It includes the root group, and the groups that this program does not manage.
	groups map[string]group
}

func readMachine(t resctrl.Tree) (*machine, error) {
	info, found, err := t.Read()
	if err != nil {
		return nil, asUnavailable(err)
	}

	m := &machine{Tree: t, info: info, groups: map[string]group{}}
	for name, g := range found {
		empty := false
		if groups.IsManaged(name) {
			tids, err := t.Tasks(name)
			if resctrl.NotExist(err) { // another program removed the group meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			empty = len(tids) == 0
		}
		m.groups[name] = group{g, empty}
	}
	return m, nil
}

// names returns the sorted names of those groups for which is(name) is true.
func (m *machine) names(is func(name string) bool) []string {
	names := slices.Sorted(maps.Keys(m.groups))
	return slices.DeleteFunc(names, func(name string) bool { return !is(name) })
}

func (m *machine) foreign() []string {
	return m.names(func(name string) bool { return name != resctrl.Root && !groups.IsManaged(name) })
}

// closidUses describes what uses CLOSIDs (or RMIDs, if these are fewer) apart from the configured classes. `used` is
// the number of CLOSIDs or RMIDs that these use. `former` has the groups of former classes that are kept. A
// pseudo-locked group has no CLOSID.
func (m *machine) closidUses(former []string) (texts []string, used int) {
	add := func(n int, format string, args ...any) {
		if n > 0 {
			texts = append(texts, fmt.Sprintf(format, args...))
			used += n
		}
	}
	locked := func(name string) bool { return m.groups[name].Mode == resctrl.PseudoLocked }
	foreign := slices.DeleteFunc(m.foreign(), locked)
	former = slices.DeleteFunc(slices.Clone(former), locked)
	add(1, "resctrl's root group uses 1")
	if !m.fewRMIDs() {
		add(m.info.DeviceCLOSIDs, "device traffic (io_alloc) uses %d", m.info.DeviceCLOSIDs)
	}
	add(len(foreign), "groups of other programs (%s) use %d", strings.Join(foreign, ", "), len(foreign))
	add(len(former), "groups of former classes that are in use (%s) use %d", strings.Join(former, ", "), len(former))
	return texts, used
}

// Schemata returns the kernel's values of each class, one line per schema. The system default is included if the
// configuration sets the root group.
func (b *Backend) Schemata() map[string]string {
	texts := map[string]string{}
	for name, schemata := range b.live.Load().effective {
		texts[strings.TrimPrefix(name, groups.Prefix)] = schemata.String()
	}
	return texts
}
