// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	goresctrl "github.com/intel/goresctrl/pkg/blockio"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/iodisks"
)

// Config is a parsed blockio section.
type Config struct {
	classes []class
	// direct is true if the plugin writes all values of containers itself, including those that the runtime could write.
	direct bool
	// costs has the parameters of iocost for disks.
	costs []cost
}

// class is a list of items. Later items override earlier ones.
type class struct {
	name  string
	items []item
}

// item has goresctrl's parameters for some devices, and a latency target, which goresctrl does not have. If Devices is
// nil, the item sets a weight for all devices.
type item struct {
	goresctrl.DevicesParameters
	// rates has the parsed rates, by kind. If the item does not set a rate, this rate is nil, and the rate of an
	// earlier item stays.
	rates [iocgroup.RateKinds]*uint64
	// weight is the parsed weight, from 10 to 1000. It is 0 if the item does not set a weight.
	weight uint64
	// latency is the latency target. It is 0 if the item does not set one.
	latency time.Duration
	place   classes.FieldError
}

// problem returns an error about a field of the item.
func (i *item) problem(field, text string) error {
	problem := i.place
	problem.Field += "." + field
	problem.Problem = text
	return &problem
}

// ClassNames returns the sorted names of the classes.
func (c *Config) ClassNames() []string {
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = class.name
	}
	return names
}

// Sets implements classes.Setter. If `direct` is set, it returns nothing, because the plugin then writes the values
// itself.
func (c *Config) Sets() []classes.Setting {
	if c.direct {
		return nil
	}
	return []classes.Setting{classes.Unified(iocgroup.IOMax), classes.Unified("io.bfq.weight"), classes.Unified("io.weight"),
		classes.Unified(string(iocgroup.IOLatency))}
}

// SetsOfNode implements classes.NodeSetter.
func (c *Config) SetsOfNode() []string {
	if len(c.costs) == 0 {
		return nil
	}
	return []string{"cost models"}
}

// rateFields returns the field names of the rates in goresctrl's configuration.
func rateFields() []string {
	return []string{"ThrottleReadBps", "ThrottleWriteBps", "ThrottleReadIOPS", "ThrottleWriteIOPS"}
}

// ParseConfig reads a configuration in goresctrl's format. It reports the problems that do not depend on the machine.
func ParseConfig(section *classes.Field) classes.BackendConfig {
	config := &Config{}
	fields := section.Fields("Classes", "Direct", "CostModels")
	if direct := fields["Direct"].Scalar(); direct != "" {
		var err error
		if config.direct, err = strconv.ParseBool(direct); err != nil {
			fields["Direct"].Report("%q is neither true nor false", direct)
		}
	}
	for _, model := range fields["CostModels"].Items() {
		config.costs = append(config.costs, parseCost(model))
	}
	for _, field := range fields["Classes"].Entries() {
		parsed := class{name: field.Name}
		for _, f := range field.Items() {
			parsed.items = append(parsed.items, parseItem(f))
		}
		config.classes = append(config.classes, parsed)
	}
	slices.SortFunc(config.classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	return config
}

func parseItem(f *classes.Field) item {
	names := rateFields()
	fields := f.Fields(slices.Concat([]string{"Devices"}, names, []string{"Weight", "Latency"})...)

	parsed := item{
		DevicesParameters: goresctrl.DevicesParameters{
			ThrottleReadBps:   fields["ThrottleReadBps"].Scalar(),
			ThrottleWriteBps:  fields["ThrottleWriteBps"].Scalar(),
			ThrottleReadIOPS:  fields["ThrottleReadIOPS"].Scalar(),
			ThrottleWriteIOPS: fields["ThrottleWriteIOPS"].Scalar(),
			Weight:            fields["Weight"].Scalar(),
		},
		place: classes.FieldError{File: f.File(), Line: f.Line(), Field: f.Path()},
	}
	if devices := fields["Devices"]; devices != nil && !devices.IsNull() {
		parsed.Devices = []string{} // not nil, because an empty list means no device
	}
	for _, device := range fields["Devices"].Items() {
		parsed.Devices = append(parsed.Devices, parsePattern(device))
	}

	for kind, text := range [iocgroup.RateKinds]string{parsed.ThrottleReadBps, parsed.ThrottleWriteBps, parsed.ThrottleReadIOPS, parsed.ThrottleWriteIOPS} {
		if text == "" {
			continue
		}
		rate := fields[names[kind]]
		parsed.rates[kind] = new(ioapply.ParseQuantity(rate, text, 0, iocgroup.MaxRate(kind)))
		if parsed.Devices == nil {
			rate.Report("throttles no device; list the devices in the field Devices")
		}
	}
	if parsed.Weight != "" {
		parsed.weight = ioapply.ParseQuantity(fields["Weight"], parsed.Weight, iocgroup.MinWeight, iocgroup.MaxWeight)
	}
	if latency := fields["Latency"]; latency.Scalar() != "" {
		parsed.latency = parseLatency(latency)
		if parsed.Devices == nil {
			latency.Report("applies to no device; list the devices in the field Devices")
		}
	}
	return parsed
}

// parseLatency reads a latency target, such as 10ms.
func parseLatency(f *classes.Field) time.Duration {
	target, err := time.ParseDuration(f.Scalar())
	switch {
	case err != nil:
		f.Report("%q is not a time; write one like 10ms or 500us", f.Scalar())
	case target < iocgroup.MinLatency:
		f.Report("%q is too small; the minimum is %s", f.Scalar(), iocgroup.MinLatency)
	case target > iocgroup.MaxLatency:
		f.Report("%q is too large; the maximum is %s", f.Scalar(), iocgroup.MaxLatency)
	}
	return target
}

func parsePattern(f *classes.Field) string {
	pattern := f.Scalar()
	if _, err := path.Match(pattern, ""); err != nil {
		f.Report("%q is not a file name pattern; write one like /dev/sd[a-z]", pattern)
	} else if !strings.HasPrefix(pattern, "/") && !iodisks.IsAlias(pattern) {
		f.Report("%q is not an absolute path; write one like /dev/sd[a-z], or "+iodisks.AliasRootFS+" or "+iodisks.AliasEphemeral, pattern)
	}
	return pattern
}
