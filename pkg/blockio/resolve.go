// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// resolver resolves the classes of a configuration to values for this machine.
type resolver struct {
	host    iodisks.FS
	node    *iodisks.Node
	machine iocgroup.Machine
	matches map[string]iodisks.Match
	// `weighs` is true if any class has a weight. `targets` is true if any class has a latency target.
	weighs, targets bool
	// These fields have sentences for the messages of conditions. `missing` has one sentence for each device pattern that
	// matches no disk.
	partitions, ignored, missing []string
	// `modelled` has the disks with cost models. `unmodelled` has one sentence for each cost model that no disk has.
	modelled, unmodelled []string
	problems             []error
}

func (r *resolver) resolve(c class) (v iocgroup.Values, degraded []string) {
	merged := merged{limits: map[iocgroup.Device]iocgroup.Value{}, weights: map[iocgroup.Device]uint64{}, latencies: map[iocgroup.Device]time.Duration{}}
	for i := range c.items {
		item := &c.items[i]
		r.weighs = r.weighs || item.weight != 0
		r.targets = r.targets || item.latency != 0
		if item.Devices == nil {
			merged.add(item, iocgroup.Device{})
			continue
		}

		disks, reasons := r.disksOf(item)
		degraded = append(degraded, reasons...)
		r.checkRates(item)
		for _, disk := range disks {
			merged.add(item, disk.Device)
		}
	}
	return valuesOf(&r.machine, merged), slices.Concat(degraded, limitless(&r.machine, merged), weightless(&r.machine, merged), targetless(&r.machine, merged))
}

// disksOf returns the disks that an item selects. `degraded` has the reasons why disks may be missing.
func (r *resolver) disksOf(item *item) (disks []iocgroup.Disk, degraded []string) {
	if len(item.Devices) == 0 {
		degraded = append(degraded, item.place.Field+" lists no device")
	}

	var unmatched []string
	for _, pattern := range item.Devices {
		found, err := r.match(pattern)
		if err != nil {
			r.problems = append(r.problems, item.problem("Devices", err.Error()))
			continue
		}
		if len(found.Disks) == 0 {
			unmatched = append(unmatched, pattern)
		}
		disks = append(disks, found.Disks...)
	}

	// One matching pattern in Devices is enough, so that one class file fits nodes with different disks. A path that is
	// not a pattern must exist.
	if len(disks) > 0 {
		unmatched = slices.DeleteFunc(unmatched, isPattern)
	}
	for _, name := range unmatched {
		r.missing = append(r.missing, fmt.Sprintf("%s matches no block device", name))
		degraded = append(degraded, fmt.Sprintf("pattern %s matches no block device on this machine", name))
	}
	return disks, degraded
}

// isPattern reports whether filepath.Match treats a path as a pattern.
func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// match returns the disks that match a pattern. It caches the result, so that all classes get the same disks for a
// pattern, and each warning appears once.
func (r *resolver) match(pattern string) (iodisks.Match, error) {
	if found, known := r.matches[pattern]; known {
		return found, nil
	}
	found, err := r.node.Match(pattern)
	if err != nil {
		return found, err
	}

	r.matches[pattern] = found
	r.partitions = append(r.partitions, found.Partitions...)
	r.ignored = append(r.ignored, found.Ignored...)
	return found, nil
}

func (r *resolver) checkRates(item *item) {
	if r.machine.Version != 2 {
		return
	}
	for kind, limit := range item.rates {
		if limit != nil && *limit == 1 {
			r.problems = append(r.problems, item.problem(rateFields()[kind],
				"the kernel refuses 1 in cgroup v2; the minimum is 2, and 0 is unlimited"))
		}
	}
}

// merged is the result of merging all items of a class. Later items override earlier ones.
type merged struct {
	limits map[iocgroup.Device]iocgroup.Value
	// weights has weights in goresctrl's units. The weight of the zero device is the default for devices without their own weight.
	weights   map[iocgroup.Device]uint64
	latencies map[iocgroup.Device]time.Duration
}

func (m *merged) add(item *item, dev iocgroup.Device) {
	limits := m.limits[dev]
	for kind, limit := range item.rates {
		if limit != nil {
			limits[kind] = *limit
		}
	}
	m.limits[dev] = limits

	if item.weight != 0 {
		m.weights[dev] = item.weight
	}
	if item.latency != 0 {
		m.latencies[dev] = item.latency
	}
}

// valuesOf distributes the values of a class to the cgroup files that exist on this machine.
func valuesOf(m *iocgroup.Machine, merged merged) iocgroup.Values {
	v := iocgroup.Values{}
	for dev, limits := range merged.limits {
		if !m.CannotLimit {
			v.SetLimits(dev, limits)
		}
	}

	for _, file := range m.Files {
		if !file.IsWeight() {
			continue
		}
		for dev, weight := range merged.weights {
			if s := (iocgroup.Setting{File: file, Device: dev}); s.IsDefaultWeight() || m.Accepts[s] {
				v[s] = iocgroup.Value{file.Convert(weight)}
			}
		}
	}

	for dev, target := range merged.latencies {
		if s := (iocgroup.Setting{File: iocgroup.IOLatency, Device: dev}); m.Accepts[s] {
			v[s] = iocgroup.Value{uint64(target.Microseconds())}
		}
	}
	return v
}

// limitless returns the reason why the limits of a class have no effect, or nothing.
func limitless(m *iocgroup.Machine, merged merged) []string {
	for _, limits := range merged.limits {
		if m.CannotLimit && limits != (iocgroup.Value{}) {
			return []string{"the limits have no effect: " + iocgroup.NoThrottling}
		}
	}
	return nil
}

func weightless(m *iocgroup.Machine, merged merged) (reasons []string) {
	for _, dev := range slices.SortedFunc(maps.Keys(merged.weights), iocgroup.CompareDevices) {
		var where string
		switch {
		case dev == iocgroup.Device{} && len(m.Acts) == 0:
			where = ", because weights are not enabled on any device"
		case dev != iocgroup.Device{} && !m.Acts[dev]:
			where = fmt.Sprintf(" on %s, because weights are not enabled on this device", m.DiskName(dev))
		default:
			continue
		}

		reasons = append(reasons, fmt.Sprintf("weight %d has no effect%s; %s", merged.weights[dev], where, iocgroup.WeightRemedy(m.Version)))
	}
	return reasons
}

// targetless returns the reasons why latency targets of a class have no effect.
func targetless(m *iocgroup.Machine, merged merged) (reasons []string) {
	reason := noLatency(m)
	switch {
	case len(merged.latencies) == 0:
		return nil
	case m.FilesUnknown:
		return []string{reason}
	case reason != "":
		return []string{"the latency has no effect: " + reason}
	}
	for _, dev := range slices.SortedFunc(maps.Keys(merged.latencies), iocgroup.CompareDevices) {
		if !m.Queued[dev] {
			reasons = append(reasons, fmt.Sprintf("latency %s has no effect on %s, which has no request queue; name the disks below it",
				merged.latencies[dev], m.DiskName(dev)))
		}
	}
	return reasons
}
