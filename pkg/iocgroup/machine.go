// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iocgroup

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// FS is the part of the host's filesystem that the package needs. Paths are paths on the host.
type FS interface {
	ReadFile(path string) ([]byte, error)
	// WriteFile does one write(2) to an existing file.
	WriteFile(path string, data []byte) error
	ReadDir(path string) ([]string, error)
	Readlink(path string) (string, error)
}

// Tree finds the hierarchy with the io controller. *cgroup.Tree implements it.
type Tree interface {
	// IORoot returns the mount point of the hierarchy with the io controller, and the cgroup version of this hierarchy.
	IORoot() (dir string, version int, err error)
	// Unified reports whether container runtimes accept values for cgroup v2 files (OCI linux.resources.unified).
	Unified() bool
}

// Machine describes the I/O controller and the disks of this machine at the time of an inspection.
type Machine struct {
	// Version and Root are the cgroup version and the mount point of the hierarchy with the io controller.
	Version int
	Root    string
	// ByRuntime is true if container runtimes write values to the cgroup files of this hierarchy.
	ByRuntime bool
	// Names has the name of each disk, as in /sys/block.
	Names map[Device]string
	// HasCost is true if the kernel has iocost.
	HasCost bool
	// CannotLimit is true if the kernel has an io controller, but no files for limits.
	CannotLimit bool
	// FilesUnknown is true while no cgroup has the io controller, so that it is unknown which files the kernel has.
	FilesUnknown bool
	// Files are the files of weights and latency targets of cgroups on this machine, sorted.
	Files []File
	// Queued has the disks with a request queue in the kernel. Other disks, such as those of device mapper, accept latency targets, which
	// have no effect.
	Queued map[Device]bool
	// Accepts has the weights and latency targets that can be written for single devices. Acts has the devices on which the I/O
	// scheduler or iocost applies weights.
	Accepts map[Setting]bool
	Acts    map[Device]bool
}

// FilesOf returns those files of the machine for which `v` has settings.
func (m *Machine) FilesOf(v Values) []File {
	return m.FilesIn(func(file File) bool { return Uses(v, file) })
}

// FilesIn returns those files of the machine for which used(file) is true.
func (m *Machine) FilesIn(used func(File) bool) (files []File) {
	for _, file := range m.Files {
		if used(file) {
			files = append(files, file)
		}
	}
	return files
}

// Inspect reads the state of the machine. If the machine has no io controller, the error is that of tree.IORoot, with the remedy.
func Inspect(host FS, tree Tree) (Machine, error) {
	m := Machine{Names: map[Device]string{}, Queued: map[Device]bool{}, Accepts: map[Setting]bool{}, Acts: map[Device]bool{}}
	root, version, err := tree.IORoot()
	if err != nil {
		return m, fmt.Errorf("%w; mount cgroup2 at /sys/fs/cgroup; "+
			"boot a kernel with CONFIG_BLK_CGROUP and CONFIG_BLK_DEV_THROTTLING, and without cgroup_disable=io", err)
	}

	m.Root, m.Version, m.ByRuntime = root, version, version == 2 && tree.Unified()
	if err := m.inspectDisks(host); err != nil {
		return m, err
	}
	m.inspectFiles(controllerFiles(host, root, version))
	if err := m.inspectCost(host); err != nil {
		return m, err
	}
	slices.Sort(m.Files)
	return m, nil
}

// controllerFiles returns the names of the files in a cgroup with the io controller, or nothing if no cgroup shows them. In cgroup v2,
// the root cgroup lacks files that the cgroups below it have.
func controllerFiles(host FS, root string, version int) []string {
	groups, counter := []string{""}, "cgroup.procs"
	if version == 2 {
		groups, _ = host.ReadDir(root)
		counter = "io.stat"
	}

	for _, group := range groups {
		files, err := host.ReadDir(path.Join(root, group))
		if err == nil && slices.Contains(files, counter) {
			return files
		}
	}
	return nil
}

// inspectFiles finds out whether the kernel was built without CONFIG_BLK_DEV_THROTTLING, so that cgroups have no files for limits, and
// whether it was built with CONFIG_BLK_CGROUP_IOLATENCY.
func (m *Machine) inspectFiles(files []string) {
	limit := IOMax
	if m.Version == 1 {
		limit = throttleFiles()[0]
	}
	m.FilesUnknown = len(files) == 0 && m.Version == 2
	m.CannotLimit = len(files) > 0 && !slices.Contains(files, limit)

	if !slices.Contains(files, string(IOLatency)) {
		return
	}
	m.addFile(IOLatency)
	for dev := range m.Names {
		m.Accepts[Setting{IOLatency, dev}] = true
	}
}

func (m *Machine) inspectDisks(host FS) error {
	names, err := host.ReadDir("/sys/block")
	if err != nil {
		return fmt.Errorf("list the disks: %w", err)
	}

	for _, name := range names {
		number, err := host.ReadFile(path.Join("/sys/block", name, "dev"))
		if err != nil {
			continue // the disk was removed meanwhile
		}
		dev, err := ParseDevice(strings.TrimSpace(string(number)))
		if err != nil {
			return fmt.Errorf("/sys/block/%s/dev: %w", name, err)
		}

		m.Names[dev] = name
		if _, err := host.ReadDir(path.Join("/sys/block", name, "mq")); err == nil {
			m.Queued[dev] = true
		}
		if schedulers, err := host.ReadFile(path.Join("/sys/block", name, "queue/scheduler")); err == nil {
			m.addSchedulers(dev, schedulers)
		}
	}
	return nil
}

// addSchedulers records the weight files of a disk's schedulers, and whether the active scheduler acts on weights.
func (m *Machine) addSchedulers(dev Device, data []byte) {
	files := map[string]File{"bfq": IOBFQWeight, "cfq": IOWeight}
	if m.Version == 1 {
		files = map[string]File{"bfq": BlkioBFQWeight, "cfq": BlkioWeight}
	}

	active, known := parseScheduler(data)
	for _, scheduler := range known {
		file, weighs := files[scheduler]
		if !weighs {
			continue
		}

		m.addFile(file)
		if scheduler == active {
			m.Accepts[Setting{file, dev}], m.Acts[dev] = true, true
		}
	}
}

// inspectCost reads the state of iocost. A device accepts weights once iocost was set up for it. A device acts on
// weights while iocost is enabled for it.
func (m *Machine) inspectCost(host FS) error {
	if m.Version == 1 {
		return nil
	}
	costs, err := ReadCosts(host, m.Root)
	if costs == nil || err != nil {
		return err
	}

	m.HasCost = true
	m.addFile(IOWeight)
	m.SetCosts(costs)
	return nil
}

// SetCosts records the parameters of iocost that devices have, or will have.
func (m *Machine) SetCosts(costs map[Device]Cost) {
	for dev, cost := range costs {
		m.Accepts[Setting{IOWeight, dev}] = true
		if cost.Enabled() {
			m.Acts[dev] = true
		}
	}
}

func (m *Machine) addFile(file File) {
	if !slices.Contains(m.Files, file) {
		m.Files = append(m.Files, file)
	}
}

// Describe lists the disks and files whose values in a state differ from those in a new cgroup.
func (m *Machine) Describe(state Values) string {
	if len(state) == 0 {
		return ""
	}
	var parts []string
	for _, s := range state.Only(func(s Setting) bool { return state[s] != s.Initial() }).Sorted() {
		switch {
		case s.IsDefaultWeight():
			parts = append(parts, string(s.File))
		case s.File == "":
			parts = append(parts, "limits of "+m.DiskName(s.Device))
		default:
			parts = append(parts, string(s.File)+" of "+m.DiskName(s.Device))
		}
	}
	return strings.Join(parts, ", ")
}

// PartName returns the name of a disk, for the Part of a classes.Series. It is "" for a disk that was added after the last inspection
// of the machine. Callers leave such a disk out: under its number, its use would be counted once more later, under its name.
func (m *Machine) PartName(dev Device) string { return m.Names[dev] }

// NoThrottling is the reason why a kernel cannot limit I/O.
const NoThrottling = "this kernel has no files for limits, such as io.max; boot a kernel with CONFIG_BLK_DEV_THROTTLING"

// WeightRemedy says how to enable weights.
func WeightRemedy(version int) string {
	remedy := "to enable weights, set the I/O scheduler of the disk to bfq (echo bfq > /sys/block/DISK/queue/scheduler)"
	if version == 2 {
		remedy += " or enable iocost for the disk (echo MAJ:MIN enable=1 > /sys/fs/cgroup/io.cost.qos)"
	}
	return remedy
}

// Present returns `v` without the values for disks that the machine lacks.
func (m *Machine) Present(v Values) Values {
	return v.Only(func(s Setting) bool { return s.IsDefaultWeight() || m.Names[s.Device] != "" })
}

// Without returns the disks of `m` that the other machine lacks.
func (m *Machine) Without(other Machine) []Device {
	return slices.DeleteFunc(m.Disks(), func(dev Device) bool { return other.Names[dev] != "" })
}

// Disks returns the disks, sorted by number.
func (m *Machine) Disks() []Device { return slices.SortedFunc(maps.Keys(m.Names), CompareDevices) }

// DiskName returns the number of a disk, and its name if the machine has the disk.
func (m *Machine) DiskName(dev Device) string {
	if name := m.Names[dev]; name != "" {
		return fmt.Sprintf("%s (%s)", dev, name)
	}
	return dev.String()
}
