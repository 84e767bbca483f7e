// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

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

// Root is the name of the root group, the top directory of resctrl. A task that was never moved is in this group.
const Root = ""

// FS is the part of a filesystem that resctrl needs. Paths are absolute paths on the host.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile writes data to an existing file in one write(2). Its error wraps the kernel's errno.
	WriteFile(path string, data []byte) error
	Mkdir(path string) error
	Remove(path string) error
	Rename(from, to string) error
	ReadDir(path string) ([]string, error)
	Mount(source, target, fstype, options string) error
}

// Tree is a mounted resctrl filesystem. It has no state of its own: each call reads or writes the kernel's files.
type Tree struct {
	host    FS
	point   string
	options []string
}

// At returns the resctrl filesystem that is mounted at a path with some mount options, e.g. "rw" and "mba_MBps". Find
// returns the one that this machine has.
func At(host FS, point string, options ...string) Tree { return Tree{host, point, options} }

// MountPoint returns the path at which resctrl is mounted.
func (t Tree) MountPoint() string { return t.point }

// Options returns the mount options, as /proc/mounts shows them. It returns nil if mountinfo does not show them.
func (t Tree) Options() []string { return t.options }

// String returns the mount point and the sorted options.
func (t Tree) String() string {
	return fmt.Sprintf("at %s with %s", t.point, strings.Join(slices.Sorted(slices.Values(t.options)), ","))
}

func (t Tree) path(elements ...string) string {
	return path.Join(append([]string{t.point}, elements...)...)
}

// Describe returns the words for a group in a message: "resctrl group NAME", or "resctrl's root group".
func Describe(group string) string {
	if group == Root {
		return "resctrl's root group"
	}
	return "resctrl group " + group
}

// MonitoringGroup returns the name of a monitoring group of a control group.
func MonitoringGroup(control, name string) string { return path.Join(control, "mon_groups", name) }

// Exists reports whether there is a control group of this name.
func (t Tree) Exists(group string) bool {
	_, err := t.host.ReadFile(t.path(group, "schemata"))
	return err == nil
}

// NotExist reports whether err means that a group does not exist. ENOTDIR counts too: newer kernels and the mount
// option debug add files to the root directory, and Groups treats these files as groups.
func NotExist(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENOTDIR)
}

// Groups returns the names of the control groups, the root group first. It treats every unknown file in the root
// directory of resctrl as a group.
func (t Tree) Groups() ([]string, error) {
	entries, err := t.host.ReadDir(t.point)
	if err != nil {
		return nil, fmt.Errorf("list resctrl groups: %w", err)
	}

	names := []string{Root}
	for _, name := range entries {
		switch name {
		case "info", "mon_groups", "mon_data", "cpus", "cpus_list", "mode", "schemata", "size", "tasks":
		default:
			names = append(names, name)
		}
	}
	return names, nil
}

// MonitoringGroups returns the directory names of the monitoring groups of a control group. A group that does not exist
// has none.
func (t Tree) MonitoringGroups(control string) ([]string, error) {
	names, err := t.host.ReadDir(t.path(control, "mon_groups"))
	if err != nil && !NotExist(err) {
		return nil, fmt.Errorf("%s: list the monitoring groups: %w", Describe(control), err)
	}
	return names, nil
}

// Mode is how a control group shares its cache with other groups.
type Mode string

// These are the modes of control groups (Documentation/filesystems/resctrl.rst, "mode").
const (
	Shareable       Mode = "shareable"
	Exclusive       Mode = "exclusive"
	PseudoLockSetup Mode = "pseudo-locksetup"
	PseudoLocked    Mode = "pseudo-locked"
)

// Group is the state of a control group.
type Group struct {
	Schemata Schemata
	Mode     Mode
}

// Exclusive reports whether the kernel refuses masks of other groups that overlap those of the group.
func (g Group) Exclusive() bool { return g.Mode == Exclusive || g.Mode == PseudoLocked }

// Schemata reads the values of a control group.
func (t Tree) Schemata(group string) (Schemata, error) {
	text, err := t.host.ReadFile(t.path(group, "schemata"))
	if err != nil {
		return nil, err
	}
	return ParseSchemata(text)
}

// Group reads the state of a control group.
func (t Tree) Group(name string) (g Group, err error) {
	if g.Schemata, err = t.Schemata(name); err != nil {
		return g, err
	}
	mode, err := t.host.ReadFile(t.path(name, "mode"))
	g.Mode = Mode(strings.TrimSpace(string(mode)))
	return g, err
}

// Read reads all control groups, by name, and what the CPU can do. It leaves out groups that other programs remove
// meanwhile. If the CPU has no resource that resctrl controls or monitors, the error is an *Unavailable.
func (t Tree) Read() (Info, map[string]Group, error) {
	names, err := t.Groups()
	if err != nil {
		return Info{}, nil, err
	}

	groups := map[string]Group{}
	for _, name := range names {
		g, err := t.Group(name)
		switch {
		case err == nil:
			groups[name] = g
		case name != Root && NotExist(err): // another program removed the group meanwhile
		default:
			return Info{}, nil, fmt.Errorf("resctrl group %q: %w", name, err)
		}
	}

	files, err := t.infoFiles()
	if err != nil {
		return Info{}, nil, fmt.Errorf("read the capabilities of resctrl: %w", err)
	}
	info, err := ParseInfo(files, largestBandwidth(groups), slices.Contains(t.options, "mba_MBps"))
	if err != nil {
		return Info{}, nil, err
	}
	assigned, err := t.Assignments(Root)
	if err != nil {
		return Info{}, nil, err
	}
	info.AssignsCounters = assigned != nil
	size, err := t.host.ReadFile(t.path("size"))
	if err != nil && !NotExist(err) {
		return Info{}, nil, fmt.Errorf("read the sizes of the caches: %w", err)
	}
	info.addSizes(string(size), groups[Root].Schemata)
	if len(info.Caches) == 0 && info.Bandwidth == nil && info.RMIDs == 0 {
		return Info{}, nil, unavailable(NoCPUSupport, "resctrl is mounted, but the CPU can neither divide its caches, nor limit memory bandwidth, nor monitor them")
	}
	return info, groups, nil
}

func (t Tree) infoFiles() (map[string][]byte, error) {
	resources, err := t.host.ReadDir(t.path("info"))
	if err != nil {
		return nil, err
	}

	files := map[string][]byte{}
	for _, resource := range resources {
		for _, file := range infoFileNames(resource) { // no machine has all of these files
			data, err := t.host.ReadFile(t.path("info", resource, file))
			if err == nil {
				files[path.Join(resource, file)] = data
			} else if optional := file == "io_alloc_cbm"; optional { // EINVAL while io_alloc is disabled
				continue
			} else if unknown := !Schema(resource).known() && resource != monitoringInfo; !unknown && !NotExist(err) {
				return nil, err
			}
		}
	}
	return files, nil
}

// These directories below info/ describe the monitoring of the last level caches, and of what the CPU's packages measure (telemetry).
const (
	monitoringInfo = "L3_MON"
	telemetryInfo  = "PERF_PKG_MON"
)

// infoFileNames returns the files that ParseInfo reads in the directory of a resource below info/. It returns files for directories
// of monitoring and of unknown resources, too, because these also limit the number of groups.
func infoFileNames(resource string) []string {
	switch schema := Schema(resource); {
	case schema == MB:
		of := "resource_schemata/MB/"
		return []string{"num_closids", "min_bandwidth", "bandwidth_gran", "delay_linear", of + "unit", of + "scale", of + "resolution", of + "min", of + "max"}
	case schema.Level() != "":
		return []string{"num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "sparse_masks", "io_alloc", "io_alloc_cbm"}
	}
	return []string{"num_closids", "num_rmids", "mon_features"}
}

// largestBandwidth returns the root group's schemata, with each bandwidth raised to the largest value of any group.
// ParseInfo derives the maximum from these values, because the root group's own bandwidth may be limited.
func largestBandwidth(groups map[string]Group) Schemata {
	root := maps.Clone(groups[Root].Schemata)
	for _, g := range groups {
		for domain, value := range g.Schemata {
			if largest, ok := root[domain]; ok && domain.Schema == MB {
				root[domain] = max(value, largest)
			}
		}
	}
	return root
}
