// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// machine is what of this machine matters to classes, as it was when it was looked at.
type machine struct {
	// version of the hierarchy with the io controller, and where it is mounted.
	version int
	root    string
	// byRuntime: runtimes write the files of this hierarchy.
	byRuntime bool
	// names of the disks that there are.
	names map[device]string
	// weightFiles are those that cgroups have here, sorted.
	weightFiles []weightFile
	// accepts tells by weight file which devices take a weight of their own, acts which of them do anything with weights.
	accepts, acts map[weightFile]map[device]bool
}

// inspect looks at the machine. The error is a *classes.Unavailable when it has no io controller.
func inspect(host FS, tree Tree) (machine, error) {
	m := machine{names: map[device]string{}, accepts: map[weightFile]map[device]bool{}, acts: map[weightFile]map[device]bool{}}
	root, version, err := tree.IORoot()
	if err != nil {
		return m, noController(err)
	}
	m.root, m.version, m.byRuntime = root, version, version == 2 && tree.Unified()
	schedulers, err := m.inspectDisks(host)
	if err != nil {
		return m, err
	}
	if err := m.inspectWeights(host, schedulers); err != nil {
		return m, err
	}
	slices.Sort(m.weightFiles)
	return m, nil
}

func noController(err error) error {
	return &classes.Unavailable{Reason: "NoIOController", Message: err.Error() + "; boot a kernel with CONFIG_BLK_CGROUP and " +
		"CONFIG_BLK_DEV_THROTTLING, without cgroup_disable=io, and mount cgroup2 at /sys/fs/cgroup"}
}

// inspectDisks notes the disks and returns which scheduler they use, and all that the kernel has, as the device {0, 0}.
func (m *machine) inspectDisks(host FS) (map[device][]string, error) {
	names, err := host.ReadDir("/sys/block")
	if err != nil {
		return nil, fmt.Errorf("list the disks: %w", err)
	}
	schedulers := map[device][]string{}
	for _, name := range names {
		number, err := host.ReadFile(path.Join("/sys/block", name, "dev"))
		if err != nil {
			continue // gone meanwhile
		}
		dev, err := parseDevice(strings.TrimSpace(string(number)))
		if err != nil {
			return nil, fmt.Errorf("/sys/block/%s/dev: %w", name, err)
		}
		m.names[dev] = name
		data, err := host.ReadFile(path.Join("/sys/block", name, "queue/scheduler"))
		if err != nil {
			continue // a device without a queue of its own
		}
		active, known := parseScheduler(data)
		schedulers[dev] = []string{active}
		schedulers[device{}] = append(schedulers[device{}], known...)
	}
	return schedulers, nil
}

func (m *machine) inspectWeights(host FS, schedulers map[device][]string) error {
	bfqFile, cfqFile := ioBFQWeight, ioWeight
	if m.version == 1 {
		bfqFile, cfqFile = blkioBFQWeight, blkioWeight
	}
	for scheduler, file := range map[string]weightFile{"bfq": bfqFile, "cfq": cfqFile} {
		if !slices.Contains(schedulers[device{}], scheduler) {
			continue
		}
		m.addWeightFile(file)
		for dev, active := range schedulers {
			if dev != (device{}) && active[0] == scheduler {
				m.accepts[file][dev], m.acts[file][dev] = true, true
			}
		}
	}
	if m.version == 1 {
		return nil
	}
	return m.inspectCost(host)
}

// inspectCost looks for iocost. A device takes weights once iocost was set up for it, and acts on them while it is enabled.
func (m *machine) inspectCost(host FS) error {
	data, err := host.ReadFile(path.Join(m.root, "io.cost.qos"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at iocost: %w", err)
	}
	costs, err := parseCostQoS(data)
	if err != nil {
		return err
	}
	m.addWeightFile(ioWeight)
	for dev, enabled := range costs {
		m.accepts[ioWeight][dev] = true
		if enabled {
			m.acts[ioWeight][dev] = true
		}
	}
	return nil
}

func (m *machine) addWeightFile(file weightFile) {
	if !slices.Contains(m.weightFiles, file) {
		m.weightFiles = append(m.weightFiles, file)
		m.accepts[file], m.acts[file] = map[device]bool{}, map[device]bool{}
	}
}

// weightsActOn says whether a device acts on weights; that any device does, if none is given.
func (m *machine) weightsActOn(devices ...device) bool {
	for _, acting := range m.acts {
		if len(devices) == 0 && len(acting) > 0 {
			return true
		}
		if slices.ContainsFunc(devices, func(dev device) bool { return acting[dev] }) {
			return true
		}
	}
	return false
}

func (m *machine) diskName(dev device) string {
	if name := m.names[dev]; name != "" {
		return fmt.Sprintf("%s (%s)", dev, name)
	}
	return dev.String()
}
