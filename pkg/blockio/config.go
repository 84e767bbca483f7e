// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Config is a parsed blockio section.
type Config struct{ classes []class }

// class is a list of items, of which later ones override earlier ones.
type class struct {
	name  string
	items []item
}

// item is the values of some devices or, without a list of devices, a weight for all.
type item struct {
	devices []string
	// listed is true when there is a list of devices, even an empty one.
	listed bool
	// rates are by kind; nil: absent, so that an earlier item's value stays.
	rates [rateKinds]*uint64
	// weight is goresctrl's, 10 to 1000; 0: absent.
	weight uint64
	// place is where the item is defined.
	place classes.FieldError
}

// problem returns a problem of a field of the item.
func (i *item) problem(field, text string) error {
	problem := i.place
	problem.Field += "." + field
	problem.Problem = text
	return &problem
}

// ClassNames returns the names of the classes, sorted.
func (c *Config) ClassNames() []string {
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = class.name
	}
	return names
}

// rateFields returns the names of the rates in goresctrl's configuration.
func rateFields() []string {
	return []string{"ThrottleReadBps", "ThrottleWriteBps", "ThrottleReadIOPS", "ThrottleWriteIOPS"}
}

// ParseConfig reads a configuration in goresctrl's format, and reports what is wrong on any machine.
func ParseConfig(section *classes.Field) classes.BackendConfig {
	config := &Config{}
	for _, field := range section.Fields("Classes")["Classes"].Entries() {
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
	fields := f.Fields(slices.Concat([]string{"Devices"}, names, []string{"Weight"})...)

	devices := fields["Devices"]
	parsed := item{
		listed: devices != nil && !devices.IsNull(),
		place:  classes.FieldError{File: f.File(), Line: f.Line(), Field: f.Path()},
	}
	for _, device := range devices.Items() {
		parsed.devices = append(parsed.devices, parsePattern(device))
	}

	for kind, name := range names {
		rate := fields[name]
		text := rate.Scalar()
		if text == "" {
			continue
		}
		parsed.rates[kind] = new(parseQuantity(rate, text, 0, maxRate(kind)))
		if !parsed.listed {
			rate.Report("throttles no device; list them in Devices")
		}
	}
	if text := fields["Weight"].Scalar(); text != "" {
		parsed.weight = parseQuantity(fields["Weight"], text, minWeight, maxWeight)
	}
	return parsed
}

// parsePattern reads a pattern of device files.
func parsePattern(f *classes.Field) string {
	pattern := f.Scalar()
	if _, err := path.Match(pattern, ""); err != nil {
		f.Report("%q is not a file name pattern; write one like /dev/sd[a-z]", pattern)
	} else if !strings.HasPrefix(pattern, "/") {
		f.Report("%q is not an absolute path; write one like /dev/sd[a-z]", pattern)
	}
	return pattern
}
