// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// cost is an entry of CostModels: the parameters of iocost for a disk.
type cost struct {
	// `pattern` is like an entry of Devices. `disk` is the model and serial number that the disk must have. An empty
	// field matches every disk.
	pattern string
	disk    iodisks.Identity
	values  iocgroup.Cost
	place   classes.FieldError
}

// parseCost reads an entry of CostModels: the name of a file that calibrate-io has written, or its content.
func parseCost(f *classes.Field) cost {
	if f.IsScalar() {
		if f = f.Load(); f == nil {
			return cost{}
		}
	}

	parsed := cost{place: classes.FieldError{File: f.File(), Line: f.Line(), Field: f.Path()}}
	fields := f.ExactFields("device", "measured", "model", "qos")
	device := required(f, fields, "device").ExactFields("path", "model", "serial", "number", "size")
	if path := required(fields["device"], device, "path"); path != nil {
		parsed.pattern = parsePattern(path)
	}
	parsed.disk = iodisks.Identity{Model: device["model"].Scalar(), Serial: device["serial"].Scalar()}

	var model [6]uint64
	section := required(f, fields, "model")
	given := section.ExactFields(iocgroup.CostModelKeys()...)
	for i, key := range iocgroup.CostModelKeys() {
		if value := requiredOf(section, given, key, "; measure it with calibrate-io --write or --directory"); value != nil {
			model[i] = ioapply.ParseQuantity(value, value.Scalar(), 1, math.MaxInt64)
		}
	}

	var qos [6]float64
	section = required(f, fields, "qos")
	given = section.ExactFields(iocgroup.CostQoSKeys()...)
	for i, key := range iocgroup.CostQoSKeys() {
		if value := required(section, given, key); value != nil {
			qos[i] = parseQoS(value, key)
		}
	}
	if given["max"] != nil && qos[4] > qos[5] {
		given["min"].Report("%s is more than max", given["min"].Scalar())
	}
	parsed.values = iocgroup.NewCost(model, qos)
	return parsed
}

func required(of *classes.Field, fields map[string]*classes.Field, name string) *classes.Field {
	return requiredOf(of, fields, name, "")
}

// requiredOf returns a field, or reports that it is missing.
func requiredOf(of *classes.Field, fields map[string]*classes.Field, name, remedy string) *classes.Field {
	if fields != nil && fields[name] == nil {
		of.Report("%s is missing%s", name, remedy)
	}
	return fields[name]
}

// parseQoS reads a value of io.cost.qos.
func parseQoS(f *classes.Field, key string) float64 {
	text := f.Scalar()
	value, err := strconv.ParseFloat(text, 64)
	least, most, unit := 1.0, 10000.0, "percent" // VRATE_MIN_PPM and VRATE_MAX_PPM in block/blk-iocost.c
	switch {
	case iocgroup.IsCostLatency(key):
		least, most, unit = 0, math.MaxInt32, "microseconds"
		value = math.Trunc(value)
	case strings.HasSuffix(key, "pct"):
		least, most = 0, 100
	}
	if err != nil || !(value >= least && value <= most) {
		f.Report("%q is not a number of %s between %.0f and %.0f", text, unit, least, most)
	}
	return value
}

// resolveCosts returns the parameters of iocost for the disks of this machine.
func (r *resolver) resolveCosts(entries []cost) map[iocgroup.Device]iocgroup.Cost {
	costs := map[iocgroup.Device]iocgroup.Cost{}
	for i := range entries {
		entry := &entries[i]
		found, err := r.match(entry.pattern)
		if err != nil {
			problem := entry.place
			problem.Problem = err.Error()
			r.problems = append(r.problems, &problem)
			continue
		}

		disks, reasons := r.costDisks(entry, found.Disks)
		if len(disks) == 0 && (!isPattern(entry.pattern) || !r.machine.HasCost) { // not each node has the disks of a pattern
			r.unmodelled = append(r.unmodelled, reasons...)
		}
		for _, disk := range disks {
			if _, has := costs[disk.Device]; has {
				r.unmodelled = append(r.unmodelled, fmt.Sprintf("%s has two cost models; the first applies", disk))
				continue
			}
			costs[disk.Device] = entry.values
		}
	}

	for _, dev := range slices.SortedFunc(maps.Keys(costs), iocgroup.CompareDevices) {
		r.modelled = append(r.modelled, r.machine.DiskName(dev))
	}
	r.machine.SetCosts(costs)
	return costs
}

// costDisks returns the disks in `matches` for which iocost can have the parameters. `reasons` says why the other disks
// cannot have them.
func (r *resolver) costDisks(entry *cost, matches []iocgroup.Disk) (disks []iocgroup.Disk, reasons []string) {
	what := "the cost model for " + entry.pattern
	switch {
	case r.machine.Version == 1:
		return nil, []string{what + " has no effect: cgroup v1 has no iocost; use cgroup v2"}
	case !r.machine.HasCost:
		return nil, []string{what + " has no effect: this kernel has no iocost; boot a kernel with CONFIG_BLK_CGROUP_IOCOST"}
	case len(matches) == 0:
		return nil, []string{what + " matches no block device"}
	}

	for _, disk := range matches {
		here := iodisks.Identify(r.host, disk.Name)
		switch {
		case !r.machine.Queued[disk.Device]:
			reasons = append(reasons, fmt.Sprintf("%s has no effect: %s has no request queue; name the disks below it", what, disk))
		case !entry.disk.Covers(here):
			reasons = append(reasons, fmt.Sprintf("%s was measured on %s, but %s is %s; measure it again with calibrate-io",
				what, entry.disk, disk, cmp.Or(here.String(), "another disk")))
		default:
			disks = append(disks, disk)
		}
	}
	return disks, reasons
}

// costCondition reports whether the cost models of the class files are in force.
func (r *resolver) costCondition() classes.Condition {
	if len(r.unmodelled) > 0 {
		return classes.Condition{Type: "CostModelsApplied", Reason: "SomeNotApplied", Message: strings.Join(r.unmodelled, "; ")}
	}
	return classes.Condition{Type: "CostModelsApplied", Healthy: true, Reason: "AllApplied",
		Message: "iocost has the cost models of " + strings.Join(r.modelled, ", ")}
}
