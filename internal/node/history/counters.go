// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// These are the names of the measures. Backends that measure the same value use the same name.
const (
	ReadBytes     = "fs_reads_bytes_total"
	WrittenBytes  = "fs_writes_bytes_total"
	Reads         = "fs_reads_total"
	Writes        = "fs_writes_total"
	IOWaiting     = "pressure_io_waiting_seconds_total"
	MemoryWaiting = "pressure_memory_waiting_seconds_total"
	CPUWaiting    = "pressure_cpu_waiting_seconds_total"
	CPUUsed       = "cpu_usage_seconds_total"
	Throttled     = "cpu_cfs_throttled_seconds_total" // the sum over all CPUs
	Memory        = "memory_bytes"
	Refaults      = "memory_refaults_total"
	HighEvents    = "memory_high_events_total"
	MaxEvents     = "memory_max_events_total"
	Bandwidth     = "memory_bandwidth_bytes_total"
	Occupancy     = "llc_occupancy_bytes"
)

// OfPod is the Part of series that the kernel counts for a container's pod.
const OfPod = "pod"

// FS is the part of the host's filesystem that Counters needs. Paths are paths on the host.
type FS interface {
	ReadFile(path string) ([]byte, error)
	Readlink(path string) (string, error)
}

// Tree finds the cgroup of a container or a pod. *cgroup.Tree implements it.
type Tree interface {
	UnifiedDir(target classes.Holder) (string, error)
	Unified() bool
}

// Counters reads the counters of a container's cgroup, and the counters of the pod's limits. It reads cgroup v2 only,
// because cgroup v1 has no pressure stall information.
type Counters struct {
	fs       FS
	tree     Tree
	files    []counterFile
	podFiles []cgroup.UsageFile

	mu    sync.Mutex // guards the fields below. A call that the kernel has blocked may end while another one reads.
	disks map[iocgroup.Device]string
	// pods has the readings of pods in the present sample, by directory.
	pods map[string]classes.Reading
}

// NewCounters returns Counters that read below a filesystem. It does no I/O.
func NewCounters(fs FS, tree Tree) *Counters {
	c := &Counters{
		fs: fs, tree: tree, podFiles: filesOfPod(), disks: map[iocgroup.Device]string{}, pods: map[string]classes.Reading{},
	}
	c.files = c.filesOfContainer()
	return c
}

// Supported returns an error if this machine has no counters.
func (c *Counters) Supported() error {
	if !c.tree.Unified() {
		return errors.New("this node uses cgroup v1, which does not count how long a container waits; boot it with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
	}
	return nil
}

// Begin begins a sample. It forgets the names of disks, because a disk can be replaced by another one.
func (c *Counters) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.disks)
	clear(c.pods)
}

// Read reads the counters of a container. It takes values from `measured` if they are there, and does not read files that
// have only such values.
func (c *Counters) Read(target classes.Holder, measured ...classes.Reading) (classes.Reading, error) {
	dir, err := c.tree.UnifiedDir(target)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of %s: %w", target, err)
	}
	files := make([]cgroup.UsageFile, 0, len(c.files))
	for _, file := range c.files {
		series := classes.Series{Measure: file.measured}
		has := func(reading classes.Reading) bool { _, has := reading[series]; return has }
		if !taken(file.measured) || !slices.ContainsFunc(measured, has) {
			files = append(files, file.UsageFile)
		}
	}

	reading, err := cgroup.ReadUsage(c.fs, dir, files, func() error { return errNothing })
	if err == nil {
		for _, other := range measured {
			take(reading, other)
		}
		maps.Copy(reading, c.ofPod(target))
	}
	return reading, err
}

// take adds those values of another reading whose measures are `taken`.
func take(reading, other classes.Reading) {
	for series, value := range other {
		if taken(series.Measure) {
			reading[series] = value
		}
	}
}

// taken reports whether the history takes the values of a measure from the meter, if the meter has them.
func taken(measure string) bool {
	switch measure {
	case ReadBytes, WrittenBytes, Reads, Writes, IOWaiting, MemoryWaiting, Bandwidth, Occupancy:
		return true
	}
	return false
}

// ofPod reads the counters of the limits of a container's pod. The reading is empty if the counters cannot be read.
func (c *Counters) ofPod(target classes.Holder) classes.Reading {
	dir, err := c.tree.UnifiedDir(classes.Holder{ID: target.SandboxID, PodUID: target.PodUID, CgroupsPath: target.PodCgroupsPath})
	if err != nil {
		return nil
	}
	c.mu.Lock()
	reading, known := c.pods[dir]
	c.mu.Unlock()
	if known {
		return reading
	}

	counted, _ := cgroup.ReadUsage(c.fs, dir, c.podFiles, func() error { return nil })
	reading = classes.Reading{}
	for series, value := range counted {
		reading[classes.Series{Measure: series.Measure, Part: OfPod}] = value
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[dir] = reading
	return reading
}

var errNothing = errors.New("the cgroup has no counters")

// counterFile is a file of a container's cgroup. If a reading already has the series `measured`, the file does not have
// to be read.
type counterFile struct {
	cgroup.UsageFile
	measured string
}

func (c *Counters) filesOfContainer() []counterFile {
	pressure := func(measure string) func(classes.Reading, []byte) {
		return cgroup.Pressure(map[string]string{"some": measure})
	}
	return []counterFile{
		{cgroup.UsageFile{Name: "io.stat", Add: c.addDisks}, IOWaiting},
		{cgroup.UsageFile{Name: "io.pressure", Add: pressure(IOWaiting)}, IOWaiting},
		{cgroup.UsageFile{Name: "memory.pressure", Add: pressure(MemoryWaiting)}, MemoryWaiting},
		{cgroup.UsageFile{Name: "cpu.pressure", Add: pressure(CPUWaiting)}, CPUWaiting},
		{cgroup.UsageFile{Name: "cpu.stat", Add: cpuStat()}, CPUUsed},
		{cgroup.UsageFile{Name: "memory.stat", Add: cgroup.Keyed(map[string]string{
			"anon": Memory, "file": Memory, "workingset_refault_anon": Refaults, "workingset_refault_file": Refaults,
		})}, Memory},
		{cgroup.UsageFile{Name: "memory.events", Add: memoryEvents()}, MaxEvents},
	}
}

// filesOfPod returns the files of a pod's cgroup. It has memory.events.local, because memory.events also counts events
// of the containers' limits.
func filesOfPod() []cgroup.UsageFile {
	return []cgroup.UsageFile{{Name: "cpu.stat", Add: cpuStat()}, {Name: "memory.events.local", Add: memoryEvents()}}
}

func cpuStat() func(classes.Reading, []byte) {
	return cgroup.Keyed(map[string]string{"usage_usec": CPUUsed, "throttled_usec": Throttled})
}

func memoryEvents() func(classes.Reading, []byte) {
	return cgroup.Keyed(map[string]string{"high": HighEvents, "max": MaxEvents})
}

func (c *Counters) addDisks(reading classes.Reading, data []byte) {
	measures := map[string]string{"rbytes": ReadBytes, "wbytes": WrittenBytes, "rios": Reads, "wios": Writes}
	iocgroup.ParseStat(data, func(dev iocgroup.Device, key string, value uint64) {
		if measure := measures[key]; measure != "" && value > 0 {
			if name := c.disk(dev); name != "" {
				reading[classes.Series{Measure: measure, Part: name}] = float64(value)
			}
		}
	})
}

// disk returns the name of a disk, or "".
func (c *Counters) disk(dev iocgroup.Device) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, known := c.disks[dev]
	if !known {
		if link, err := c.fs.Readlink("/sys/dev/block/" + dev.String()); err == nil {
			name = path.Base(link)
		}
		c.disks[dev] = name
	}
	return name
}
