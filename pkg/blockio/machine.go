// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// machine describes the I/O controller and the disks of this machine at the time of an inspection.
type machine struct {
	// version and root are the cgroup version and the mount point of the hierarchy with the io controller.
	version int
	root    string
	// byRuntime is true if container runtimes write values to the cgroup files of this hierarchy.
	byRuntime bool
	names     map[device]string
	// cannotLimit is true if the kernel has an io controller, but no files for limits.
	cannotLimit bool
	// weightFiles are the weight files of cgroups on this machine, sorted.
	weightFiles []weightFile
	// accepts has the weight settings that can be written for single devices. acts has the devices on which the I/O
	// scheduler or iocost applies weights.
	accepts map[setting]bool
	acts    map[device]bool
}

// weightsOf returns those weight files of the machine for which v has settings.
func (m *machine) weightsOf(v values) []weightFile {
	used := map[weightFile]bool{}
	for s := range v {
		used[s.file] = true
	}
	return slices.DeleteFunc(slices.Clone(m.weightFiles), func(file weightFile) bool { return !used[file] })
}

// inspect reads the state of the machine. If the machine has no io controller, the error is a *classes.Unavailable.
func inspect(host FS, tree Tree) (machine, error) {
	m := machine{names: map[device]string{}, accepts: map[setting]bool{}, acts: map[device]bool{}}
	root, version, err := tree.IORoot()
	if err != nil {
		return m, &classes.Unavailable{Reason: "NoIOController", Message: err.Error() + "; mount cgroup2 at /sys/fs/cgroup; " +
			"boot a kernel with CONFIG_BLK_CGROUP and CONFIG_BLK_DEV_THROTTLING, and without cgroup_disable=io"}
	}

	m.root, m.version, m.byRuntime = root, version, version == 2 && tree.Unified()
	m.cannotLimit = cannotLimit(host, root, version)
	if err := m.inspectDisks(host); err != nil {
		return m, err
	}
	if err := m.inspectCost(host); err != nil {
		return m, err
	}
	slices.Sort(m.weightFiles)
	return m, nil
}

// cannotLimit reports whether the kernel was built without CONFIG_BLK_DEV_THROTTLING. Then the cgroups with an io controller have
// no files for limits. In cgroup v2, the root cgroup has no such files anyway, so cannotLimit looks into the cgroups below it.
func cannotLimit(host FS, root string, version int) bool {
	groups, counter, limit := []string{""}, "cgroup.procs", throttleFiles()[0]
	if version == 2 {
		groups, _ = host.ReadDir(root)
		counter, limit = "io.stat", ioMax
	}

	for _, group := range groups {
		files, err := host.ReadDir(path.Join(root, group))
		if err == nil && slices.Contains(files, counter) {
			return !slices.Contains(files, limit)
		}
	}
	return false // no cgroup shows it
}

func (m *machine) inspectDisks(host FS) error {
	names, err := host.ReadDir("/sys/block")
	if err != nil {
		return fmt.Errorf("list the disks: %w", err)
	}

	for _, name := range names {
		number, err := host.ReadFile(path.Join("/sys/block", name, "dev"))
		if err != nil {
			continue // the disk was removed meanwhile
		}
		dev, err := parseDevice(strings.TrimSpace(string(number)))
		if err != nil {
			return fmt.Errorf("/sys/block/%s/dev: %w", name, err)
		}

		m.names[dev] = name
		if schedulers, err := host.ReadFile(path.Join("/sys/block", name, "queue/scheduler")); err == nil {
			m.addSchedulers(dev, schedulers)
		}
	}
	return nil
}

// addSchedulers records the weight files of a disk's schedulers, and whether the active scheduler acts on weights.
func (m *machine) addSchedulers(dev device, data []byte) {
	files := map[string]weightFile{"bfq": ioBFQWeight, "cfq": ioWeight}
	if m.version == 1 {
		files = map[string]weightFile{"bfq": blkioBFQWeight, "cfq": blkioWeight}
	}

	active, known := parseScheduler(data)
	for _, scheduler := range known {
		file, weighs := files[scheduler]
		if !weighs {
			continue
		}

		m.addWeightFile(file)
		if scheduler == active {
			m.accepts[setting{file, dev}], m.acts[dev] = true, true
		}
	}
}

// inspectCost reads the state of iocost. A device accepts weights once iocost was set up for it. A device acts on
// weights while iocost is enabled for it.
func (m *machine) inspectCost(host FS) error {
	if m.version == 1 {
		return nil
	}
	data, err := host.ReadFile(path.Join(m.root, "io.cost.qos"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for iocost: %w", err)
	}
	costs, err := parseCostQoS(data)
	if err != nil {
		return err
	}

	m.addWeightFile(ioWeight)
	for dev, enabled := range costs {
		m.accepts[setting{ioWeight, dev}] = true
		if enabled {
			m.acts[dev] = true
		}
	}
	return nil
}

func (m *machine) addWeightFile(file weightFile) {
	if !slices.Contains(m.weightFiles, file) {
		m.weightFiles = append(m.weightFiles, file)
	}
}

// present returns v without the values for disks that the machine lacks.
func (m *machine) present(v values) values {
	return v.only(func(s setting) bool { return s.isDefaultWeight() || m.names[s.device] != "" })
}

// without returns the disks of m that the other machine lacks.
func (m *machine) without(other machine) []device {
	return slices.DeleteFunc(m.disks(), func(dev device) bool { return other.names[dev] != "" })
}

func (m *machine) disks() []device { return slices.SortedFunc(maps.Keys(m.names), compareDevices) }

func (m *machine) diskName(dev device) string {
	if name := m.names[dev]; name != "" {
		return fmt.Sprintf("%s (%s)", dev, name)
	}
	return dev.String()
}
