// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// resolver resolves the classes of a configuration to values for this machine.
type resolver struct {
	node    *iodisks.Node
	machine iocgroup.Machine
	matches map[string]iodisks.Match
	// weighs is true if any class has a weight.
	weighs bool
	// These fields have sentences for the messages of conditions. `missing` has one sentence for each device pattern that
	// matches no disk.
	partitions, ignored, missing []string
	problems                     []error
}

func (r *resolver) resolve(c class) (v iocgroup.Values, degraded []string) {
	merged := merged{limits: map[iocgroup.Device]iocgroup.Value{}, weights: map[iocgroup.Device]uint64{}}
	for i := range c.items {
		item := &c.items[i]
		r.weighs = r.weighs || item.weight != 0
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
	return valuesOf(&r.machine, merged), slices.Concat(degraded, limitless(&r.machine, merged), weightless(&r.machine, merged))
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
	weights map[iocgroup.Device]uint64
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
}

// valuesOf distributes the values of a class to the cgroup files that exist on this machine.
func valuesOf(m *iocgroup.Machine, merged merged) iocgroup.Values {
	v := iocgroup.Values{}
	for dev, limits := range merged.limits {
		if !m.CannotLimit {
			v.SetLimits(dev, limits)
		}
	}

	for _, file := range m.WeightFiles {
		for dev, weight := range merged.weights {
			if s := (iocgroup.Setting{File: file, Device: dev}); s.IsDefaultWeight() || m.Accepts[s] {
				v[s] = iocgroup.Value{file.Convert(weight)}
			}
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

func (r *resolver) conditions(scope classes.Scope) []classes.Condition {
	slices.Sort(r.missing)

	devices := classes.Condition{Type: "DevicesMatched", Healthy: true, Reason: "AllMatched",
		Message: "every entry of a Devices list matches block devices only"}
	if problems := slices.Concat(slices.Compact(r.missing), r.ignored); len(problems) > 0 {
		devices.Healthy, devices.Reason = false, "SomeIgnored"
		devices.Message = strings.Join(problems, "; ") + "; correct the field Devices, or attach the devices"
	}

	all := []classes.Condition{devices}
	if len(r.partitions) > 0 {
		all = append(all, classes.Condition{Type: "WholeDisks", Reason: "PartitionMeansDisk",
			Message: strings.Join(r.partitions, "; ") + "; name the disk"})
	}
	if r.weighs {
		all = append(all, weightsCondition(&r.machine, scope))
	}
	return all
}

// weightsCondition reports whether weights have an effect, and against whom. The kernel compares the weights of cgroups with the
// same parent.
func weightsCondition(m *iocgroup.Machine, scope classes.Scope) classes.Condition {
	if len(m.Acts) > 0 {
		against := "the weight of a container counts only against other containers of its pod; to weight pods, use a resource with scope: pod"
		if scope == classes.PodScope {
			against = "the weight of a pod counts only against pods of the same quality of service (guaranteed, burstable or best effort)"
		}
		return classes.Condition{Type: "WeightsEffective", Healthy: true, Limited: true, Reason: "SchedulerActs",
			Message: "weights are enabled on at least one device; " + against}
	}
	return classes.Condition{Type: "WeightsEffective", Reason: "NoScheduler",
		Message: "weights are not enabled on any device, so they have no effect; " + iocgroup.WeightRemedy(m.Version)}
}
