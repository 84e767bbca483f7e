// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
)

type tree struct {
	host    FS
	point   string
	options []string
}

func (t tree) path(elements ...string) string {
	return path.Join(append([]string{t.point}, elements...)...)
}

func (t tree) exists(group string) bool {
	_, err := t.host.ReadFile(t.path(group, "schemata"))
	return err == nil
}

// notExist reports whether err means that a group does not exist. ENOTDIR counts too: newer kernels and the mount
// option debug add files to the root directory, and groupNames treats these files as groups.
func notExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOTDIR)
}

// groupNames returns the names of the control groups, the root group first. It treats every unknown file in the root
// directory of resctrl as a group.
func (t tree) groupNames() ([]string, error) {
	entries, err := t.host.ReadDir(t.point)
	if err != nil {
		return nil, fmt.Errorf("list resctrl groups: %w", err)
	}

	names := []string{rootGroup}
	for _, name := range entries {
		switch name {
		case "info", "mon_groups", "mon_data", "cpus", "cpus_list", "mode", "schemata", "size", "tasks":
		default:
			names = append(names, name)
		}
	}
	return names, nil
}

type group struct {
	schemata Schemata
	// mode is shareable, exclusive, pseudo-locksetup or pseudo-locked.
	mode string
	// empty is true for a managed group without tasks. It is always false for other groups.
	empty bool
}

func (g group) exclusive() bool { return g.mode == "exclusive" || g.mode == "pseudo-locked" }

func (t tree) readSchemata(group string) (Schemata, error) {
	text, err := t.host.ReadFile(t.path(group, "schemata"))
	if err != nil {
		return nil, err
	}
	return ParseSchemata(text)
}

func (t tree) readGroup(name string) (g group, err error) {
	if g.schemata, err = t.readSchemata(name); err != nil {
		return g, err
	}

	mode, err := t.host.ReadFile(t.path(name, "mode"))
	g.mode = strings.TrimSpace(string(mode))
	if err != nil || !isManaged(name) {
		return g, err
	}

	tasks, err := t.host.ReadFile(t.path(name, "tasks"))
	g.empty = len(strings.TrimSpace(string(tasks))) == 0
	return g, err
}

type machine struct {
	tree
	info Info
	// groups has all control groups by name. It includes the root group, and the groups that this program does not manage.
	groups map[string]group
}

func isManaged(name string) bool { return strings.HasPrefix(name, GroupPrefix) && name != GroupPrefix }

// names returns the sorted names of those groups for which is(name) is true.
func (m *machine) names(is func(name string) bool) []string {
	names := slices.Sorted(maps.Keys(m.groups))
	return slices.DeleteFunc(names, func(name string) bool { return !is(name) })
}

func (m *machine) foreign() []string {
	return m.names(func(name string) bool { return name != rootGroup && !isManaged(name) })
}

func (m *machine) closids() int {
	return len(m.names(func(name string) bool { return m.groups[name].mode != "pseudo-locked" }))
}

func readMachine(t tree) (*machine, error) {
	m := &machine{tree: t, groups: map[string]group{}}
	names, err := t.groupNames()
	if err != nil {
		return nil, err
	}

	for _, name := range names {
		g, err := t.readGroup(name)
		switch {
		case err == nil:
			m.groups[name] = g
		case name != rootGroup && notExist(err): // another program removed the group meanwhile
		default:
			return nil, fmt.Errorf("resctrl group %q: %w", name, err)
		}
	}

	files, err := t.readInfo()
	if err != nil {
		return nil, fmt.Errorf("read the capabilities of resctrl: %w", err)
	}

	if m.info, err = ParseInfo(files, m.largestBandwidth(), slices.Contains(t.options, "mba_MBps")); err != nil {
		return nil, err
	}
	if len(m.info.Caches) == 0 && m.info.Bandwidth == nil && m.info.RMIDs == 0 {
		return nil, unavailable(NoCPUSupport, "resctrl is mounted, but the CPU can neither divide its caches, nor limit memory bandwidth, nor monitor them")
	}
	return m, nil
}

func (t tree) readInfo() (map[string][]byte, error) {
	resources, err := t.host.ReadDir(t.path("info"))
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	for _, resource := range resources {
		for _, file := range []string{ // no machine has all of these files
			"num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "sparse_masks", "min_bandwidth", "bandwidth_gran", "num_rmids",
		} {
			data, err := t.host.ReadFile(t.path("info", resource, file))
			if err == nil {
				files[path.Join(resource, file)] = data
			} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				return nil, err
			}
		}
	}
	return files, nil
}

// largestBandwidth returns the root group's schemata, with each bandwidth raised to the largest value of any group.
// ParseInfo derives the maximum from these values, because the root group's own bandwidth may be limited.
func (m *machine) largestBandwidth() Schemata {
	root := maps.Clone(m.groups[rootGroup].schemata)
	for _, g := range m.groups {
		for domain, value := range g.schemata {
			if largest, ok := root[domain]; ok && domain.Schema == MB {
				root[domain] = max(value, largest)
			}
		}
	}
	return root
}
