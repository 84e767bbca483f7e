// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// ParseConfig reads an RDT configuration in goresctrl's format. It reports the problems that do not depend on the CPU.
func ParseConfig(section *classes.Field) classes.BackendConfig {
	config, _ := readConfig(section)
	return config
}

// readConfig reads a configuration. It also returns the field with its partitions.
func readConfig(section *classes.Field) (config *Config, partitions *classes.Field) {
	r := reader{config: &Config{optional: map[string]bool{}}, classes: map[string]int{}}
	fields := section.Fields("options", "partitions", "monitoring", devicesField)

	for name, option := range fields["options"].Fields("l2", "l3", "mb") {
		r.config.optional[name] = parseBool(option.Fields("optional")["optional"])
	}
	for _, p := range fields["partitions"].Entries() {
		r.partition(p)
	}
	r.config.devices = parseDevices(fields[devicesField])
	r.config.monitored = r.monitoring(fields["monitoring"])

	slices.SortFunc(r.config.partitions, func(a, b partition) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(r.config.denials)
	return r.config, fields["partitions"]
}

// parseAlone is ParseConfig for files that are checked without a machine. It also reports partitions that cannot fit in
// any cache, e.g. because their shares add up to 140%. ParseConfig does not report these, because a machine without
// such a cache accepts them if the setting is optional.
func parseAlone(section *classes.Field) classes.BackendConfig {
	config, partitions := readConfig(section)
	for _, level := range []string{resctrl.L2, resctrl.L3} {
		if err := config.indivisible(level); err != nil {
			partitions.Report("%v", err)
		}
	}
	return config
}

type reader struct {
	config *Config
	// classes has the line of each class that was read so far, by class name.
	classes map[string]int
}

func (r *reader) partition(f *classes.Field) {
	fields := f.Fields("l2Allocation", "l3Allocation", "mbAllocation", "classes", "sharedWithDevices")
	p := partition{name: f.Name, allocation: parseAllocation(fields, true), withDevices: parseBool(fields["sharedWithDevices"])}
	for _, c := range fields["classes"].Entries() {
		p.classes = append(p.classes, r.class(c, fields))
	}
	slices.SortFunc(p.classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	r.config.partitions = append(r.config.partitions, p)
}

// class reads a class of a partition from the field `f`. `partition` has the fields of the partition.
func (r *reader) class(f *classes.Field, partition map[string]*classes.Field) class {
	name := f.Name
	if name == groups.RootClass {
		name = classes.SystemDefault
	}
	r.checkName(f, name)

	fields := f.Fields("l2Allocation", "l3Allocation", "mbAllocation", "kubernetes")
	for setting, field := range fields {
		if setting != "kubernetes" && partition[setting] == nil {
			field.Report("the partition of this class has no %s; add it to the partition, e.g. 100%%", setting)
		}
	}

	options := fields["kubernetes"].Fields("denyPodAnnotation", "denyContainerAnnotation")
	forPods, forContainers := parseBool(options["denyPodAnnotation"]), parseBool(options["denyContainerAnnotation"])
	if forPods || forContainers {
		r.config.denials = append(r.config.denials, f.Name)
	}
	return class{name, parseAllocation(fields, false)}
}

// checkName reports a problem if another class has the name, or if the name cannot be part of a resctrl group's name.
func (r *reader) checkName(f *classes.Field, name string) {
	switch {
	case name == classes.SystemDefault:
	case strings.ContainsAny(name, "/\n"), name == ".", name == "..":
		f.Report("a class name must not have %q or a line break, because a class name becomes a directory name", "/")
	case len(groups.Prefix+name) > groups.MaxName:
		f.Report("a class name must not be longer than %d characters", groups.MaxName-len(groups.Prefix))
	}

	if line, ok := r.classes[name]; ok {
		f.Report("class %q is already defined in line %d; a class can be in only one partition", cmp.Or(name, groups.RootClass), line)
	}
	r.classes[name] = f.Line()
}

// parseBool reads a boolean by the rules of YAML 1.1, as goresctrl does.
func parseBool(f *classes.Field) bool {
	switch strings.ToLower(f.Scalar()) {
	case "true", "yes", "on", "y":
		return true
	case "false", "no", "off", "n":
		return false
	}
	if f != nil {
		f.Report("must be true or false")
	}
	return false
}

func parseAllocation(fields map[string]*classes.Field, inPartition bool) allocation {
	parse := func(f *classes.Field) share { return parseShare(f, inPartition) }
	return allocation{
		caches: map[string][]setting[share]{
			resctrl.L2: parseByID(fields["l2Allocation"], (*classes.Field).IsScalar, parse),
			resctrl.L3: parseByID(fields["l3Allocation"], (*classes.Field).IsScalar, parse),
		},
		mb: parseByID(fields["mbAllocation"], (*classes.Field).IsList, parseBandwidth),
	}
}

// parseByID reads one value that applies to all cache IDs, or a mapping from cache IDs to values. It returns nil only if the
// field is missing: an empty mapping means the whole resource.
func parseByID[T any](f *classes.Field, isValue func(*classes.Field) bool, parse func(*classes.Field) T) []setting[T] {
	if f == nil {
		return nil
	}
	if isValue(f) {
		return []setting[T]{{value: parse(f)}}
	}

	entries := f.Entries()
	settings := make([]setting[T], len(entries))
	for i, entry := range entries {
		ids, err := parseIDs(entry.Name)
		if err != nil {
			entry.Report(`%q is not a list of cache IDs: %v; write "all", or IDs as in "0-1,4"`, entry.Name, err)
		}
		for j, other := range settings[:i] {
			if id, common := ids.common(other.ids); common {
				entry.Report("cache ID %d is in %q and in %q; list each ID once", id, entries[j].Name, entry.Name)
			}
		}
		settings[i] = setting[T]{ids, parse(entry)}
	}
	return settings
}

func parseShare(f *classes.Field, inPartition bool) share {
	if f.IsScalar() {
		return share{unified: parseProportionField(f, inPartition)}
	}
	fields := f.Fields(unified, code, data)
	switch {
	case fields == nil:
		return nil
	case fields[code] != nil && fields[data] == nil:
		f.Report("has the field code, but not data; set both, or only the field unified")
	case fields[data] != nil && fields[code] == nil:
		f.Report("has the field data, but not code; set both, or only the field unified")
	}
	if fields[unified] == nil {
		f.Report("has no field unified; add it for machines that do not allocate code and data separately")
	}

	s := share{}
	for kind, field := range fields {
		s[kind] = parseProportionField(field, inPartition)
	}
	return s
}

// parseProportionField returns nil if it reports that the field is not a share of a cache.
func parseProportionField(f *classes.Field, inPartition bool) *proportion {
	text, ok := f.Text()
	if !ok {
		return nil
	}

	p, err := parseProportion(text)
	switch {
	case err != nil:
		f.Report("%v", err)
		return nil
	case inPartition && p.ranged:
		f.Report(`%q: a partition has no range in per cent; write a share like "60%%", or bits`, text)
	case !inPartition && p.relative() && p.high == 0:
		f.Report("%q: the share of a class must be above 0%%; write 1%% for the smallest possible share", text)
	}
	return &p
}

// parseBandwidth reads the shares of one cache ID, like ["50%", "1000MBps"]. If several have the same unit, the first one counts.
func parseBandwidth(f *classes.Field) (b bandwidth) {
	items := f.Items()
	for _, item := range items {
		if text, ok := item.Text(); ok {
			if err := b.add(text); err != nil {
				item.Report("%v", err)
			}
		}
	}

	if len(items) == 0 && (f.IsList() || f.IsNull()) {
		f.Report(`is empty; write ["50%%"], ["1000MBps"], or both`)
	}
	return b
}
