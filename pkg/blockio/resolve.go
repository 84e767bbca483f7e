// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// resolvedClass is a class as it is on this machine.
type resolvedClass struct {
	values values
	// weighs: the class says something of weights.
	weighs bool
	// degraded are the reasons why the class is enforced in part only.
	degraded []string
}

// resolver makes classes into values for this machine.
type resolver struct {
	host    FS
	machine machine
	matches map[string]match
	// partitions and ignored are sentences for conditions.
	partitions, ignored []string
	problems            []error
}

func (r *resolver) resolve(c class) resolvedClass {
	merged := merged{rates: map[device]rates{}, weights: map[device]uint64{}}
	var done resolvedClass
	for i := range c.items {
		item := &c.items[i]
		done.weighs = done.weighs || item.weight != 0
		if !item.listed {
			merged.base = cmp.Or(item.weight, merged.base)
			continue
		}
		disks, degraded := r.disksOf(item)
		done.degraded = append(done.degraded, degraded...)
		r.checkRates(item)
		merged.add(item, disks)
	}
	done.values = r.machine.valuesOf(merged)
	done.degraded = append(done.degraded, r.machine.weightless(merged)...)
	return done
}

// disksOf returns the disks that an item is for, and why some may be missing.
func (r *resolver) disksOf(item *item) (disks []disk, degraded []string) {
	if len(item.devices) == 0 {
		degraded = append(degraded, item.place.Field+" lists no device")
	}
	for _, pattern := range item.devices {
		found, err := r.match(pattern)
		if err != nil {
			r.problems = append(r.problems, item.problem("Devices", err.Error()))
			continue
		}
		if len(found.disks) == 0 {
			degraded = append(degraded, fmt.Sprintf("pattern %s matches no block device on this machine", pattern))
		}
		disks = append(disks, found.disks...)
	}
	return disks, degraded
}

// match remembers what a pattern led to, so that classes which share it agree, and its warnings are given once.
func (r *resolver) match(pattern string) (match, error) {
	if found, known := r.matches[pattern]; known {
		return found, nil
	}
	found, err := matchDevices(r.host, pattern)
	if err != nil {
		return found, err
	}
	r.matches[pattern] = found
	r.partitions = append(r.partitions, found.partitions...)
	r.ignored = append(r.ignored, found.ignored...)
	return found, nil
}

// checkRates refuses what this machine's kernel refuses: io.max takes no 1 (block/blk-throttle.c).
func (r *resolver) checkRates(item *item) {
	if r.machine.version != 2 {
		return
	}
	for kind, limit := range item.rates {
		if limit != nil && *limit == 1 {
			r.problems = append(r.problems, item.problem(rateFields()[kind],
				"1 is refused by the kernel in cgroup v2; the least is 2, and 0 is unlimited"))
		}
	}
}

// merged is what the items of a class come to, later ones overriding earlier ones.
type merged struct {
	rates map[device]rates
	// base is the weight of devices that have none in weights; 0: not mentioned.
	base    uint64
	weights map[device]uint64
}

func (m *merged) add(item *item, disks []disk) {
	for _, disk := range disks {
		limits := m.rates[disk.device]
		for kind, limit := range item.rates {
			if limit != nil {
				limits[kind] = *limit
			}
		}
		m.rates[disk.device] = limits
		if item.weight != 0 {
			m.weights[disk.device] = item.weight
		}
	}
}

// valuesOf distributes the values of a class to the files that this machine has.
func (m *machine) valuesOf(merged merged) values {
	v := newValues()
	for dev, limits := range merged.rates {
		if limits != unlimited() {
			v.rates[dev] = limits
		}
	}
	for _, file := range m.weightFiles {
		w := weights{devices: map[device]uint64{}}
		if merged.base != 0 {
			w.base = file.convert(merged.base)
		}
		for dev, weight := range merged.weights {
			if m.accepts[file][dev] {
				w.devices[dev] = file.convert(weight)
			}
		}
		if w.base != 0 || len(w.devices) > 0 {
			v.weights[file] = w
		}
	}
	return v
}

// weightless says which weights of a class nothing acts on.
func (m *machine) weightless(merged merged) []string {
	var reasons []string
	if merged.base != 0 && !m.weightsActOn() {
		reasons = append(reasons, fmt.Sprintf("weight %d has no effect: no device acts on weights; %s", merged.base, weightRemedy(m.version)))
	}
	for _, dev := range sortedDevices(merged.weights) {
		if !m.weightsActOn(dev) {
			reasons = append(reasons, fmt.Sprintf("weight %d has no effect on %s: it does not act on weights; %s",
				merged.weights[dev], m.diskName(dev), weightRemedy(m.version)))
		}
	}
	return reasons
}

func weightRemedy(version int) string {
	remedy := "set its I/O scheduler to bfq (echo bfq > /sys/block/DISK/queue/scheduler)"
	if version == 2 {
		remedy += " or enable iocost for it (echo MAJ:MIN enable=1 > /sys/fs/cgroup/io.cost.qos)"
	}
	return remedy
}

// conditions are what users should know of the configuration as a whole.
func (r *resolver) conditions(weighing bool) []classes.Condition {
	devices := classes.Condition{Type: "DevicesMatched", Healthy: true, Reason: "AllMatched",
		Message: "every device pattern matches block devices only"}
	var unmatched []string
	for pattern, found := range r.matches {
		if len(found.disks) == 0 {
			unmatched = append(unmatched, fmt.Sprintf("%s matches no block device", pattern))
		}
	}
	slices.Sort(unmatched)
	if complaints := slices.Concat(unmatched, r.ignored); len(complaints) > 0 {
		devices.Healthy, devices.Reason = false, "SomeIgnored"
		devices.Message = strings.Join(complaints, "; ") + "; correct Devices, or attach the devices"
	}
	all := []classes.Condition{devices}
	if len(r.partitions) > 0 {
		all = append(all, classes.Condition{Type: "WholeDisks", Reason: "PartitionMeansDisk",
			Message: strings.Join(r.partitions, "; ") + "; name the disk"})
	}
	if weighing {
		all = append(all, r.machine.weightsCondition())
	}
	return all
}

func (m *machine) weightsCondition() classes.Condition {
	if m.weightsActOn() {
		return classes.Condition{Type: "WeightsEffective", Healthy: true, Reason: "SchedulerActs", Message: "at least one device acts on weights"}
	}
	return classes.Condition{Type: "WeightsEffective", Reason: "NoScheduler",
		Message: "no device acts on weights, they do nothing; for each disk " + weightRemedy(m.version)}
}

func (r *resolver) err() error { return errors.Join(r.problems...) }
