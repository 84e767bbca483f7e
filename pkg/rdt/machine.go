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

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// group is a control group as it stands.
type group struct {
	schemata Schemata
	// mode is shareable, exclusive, pseudo-locksetup or pseudo-locked.
	mode string
	// empty says that no task is in it; it is only known of groups that are ours.
	empty bool
}

func (g group) exclusive() bool { return g.mode == "exclusive" || g.mode == "pseudo-locked" }

// machine is resctrl as it stands.
type machine struct {
	mount resctrlMount
	info  Info
	// groups are all control groups by name, foreign ones and the root included.
	groups map[string]group
}

// isOurs says whether a group is for us to change.
func isOurs(name string) bool { return strings.HasPrefix(name, GroupPrefix) && name != GroupPrefix }

// names of the groups for which is holds, sorted.
func (m *machine) names(is func(name string) bool) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		if is(name) {
			names = append(names, name)
		}
	}
	return names
}

func (m *machine) foreign() []string {
	return m.names(func(name string) bool { return name != rootGroup && !isOurs(name) })
}

// closids is how many control groups there are. Groups that are locked to a part of the cache have given theirs back.
func (m *machine) closids() int {
	return len(m.names(func(name string) bool { return m.groups[name].mode != "pseudo-locked" }))
}

// readMachine reads all that counts of resctrl. It writes nothing.
func readMachine(host FS, mount resctrlMount) (*machine, error) {
	m := &machine{mount: mount, groups: map[string]group{}}
	names, err := groupNames(host, mount.point)
	if err != nil {
		return nil, fmt.Errorf("list resctrl groups: %w", err)
	}
	for _, name := range names {
		g, err := readGroup(host, path.Join(mount.point, name), isOurs(name))
		switch {
		case err == nil:
			m.groups[name] = g
		case name != rootGroup && gone(err): // its owner removed it meanwhile
		default:
			return nil, fmt.Errorf("resctrl group %q: %w", name, err)
		}
	}
	files, err := readInfo(host, path.Join(mount.point, "info"))
	if err != nil {
		return nil, fmt.Errorf("read what resctrl offers: %w", err)
	}
	if m.info, err = ParseInfo(files, m.largestBandwidth(), mount.has("mba_MBps")); err != nil {
		return nil, err
	}
	if len(m.info.Caches) == 0 && m.info.Bandwidth == nil {
		return nil, &classes.Unavailable{Reason: NoCPUSupport,
			Message: "resctrl is mounted, but the CPU can neither divide its caches nor limit memory bandwidth"}
	}
	return m, nil
}

// gone says that there is no such group: ENOTDIR is of a file that resctrl has on kernels newer than this program, or with "-o debug".
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOTDIR)
}

// groupNames are those of the control groups: the root and all that is not known to be resctrl's own. What turns out to be a file is gone.
func groupNames(host FS, point string) ([]string, error) {
	entries, err := host.ReadDir(point)
	if err != nil {
		return nil, err
	}
	names := []string{rootGroup}
	for _, name := range entries {
		switch name {
		case "info", "mon_groups", "mon_data", "cpus", "cpus_list", "mode", "schemata", "size", "tasks":
			continue
		}
		names = append(names, name)
	}
	return names, nil
}

func readGroup(host FS, dir string, ours bool) (group, error) {
	var g group
	text, err := host.ReadFile(path.Join(dir, "schemata"))
	if err != nil {
		return g, err
	}
	if g.schemata, err = ParseSchemata(text); err != nil {
		return g, err
	}
	mode, err := host.ReadFile(path.Join(dir, "mode"))
	if err != nil {
		return g, err
	}
	g.mode = strings.TrimSpace(string(mode))
	if !ours {
		return g, nil
	}
	tasks, err := host.ReadFile(path.Join(dir, "tasks"))
	g.empty = len(strings.TrimSpace(string(tasks))) == 0
	return g, err
}

// infoFiles are those of a directory of info/ that ParseInfo knows; no machine has all of them.
//
//nolint:gochecknoglobals // data, never changed
var infoFiles = []string{"num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "sparse_masks", "min_bandwidth", "bandwidth_gran"}

func readInfo(host FS, dir string) (map[string][]byte, error) {
	resources, err := host.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, resource := range resources {
		for _, file := range infoFiles {
			data, err := host.ReadFile(path.Join(dir, resource, file))
			if err == nil {
				files[path.Join(resource, file)] = data
			} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
				return nil, err
			}
		}
	}
	return files, nil
}

// largestBandwidth are the root group's schemata, with the largest bandwidth of all groups: whoever lowered that of the
// root group, it is from there that the greatest possible value is known.
func (m *machine) largestBandwidth() Schemata {
	root := m.groups[rootGroup].schemata.clone()
	for _, g := range m.groups {
		for id, value := range g.schemata[MB] {
			if _, ok := root[MB][id]; ok {
				root.set(MB, id, max(value, root[MB][id]))
			}
		}
	}
	return root
}
