// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// ParseConfig reads an RDT configuration in goresctrl's format, and reports what is wrong on any CPU.
func ParseConfig(section *classes.Field) classes.BackendConfig {
	r := reader{config: &Config{optional: map[string]bool{}}, classes: map[string]int{}}
	fields := section.Fields("options", "partitions")

	for name, option := range fields["options"].Fields("l2", "l3", "mb") {
		optional := option.Fields("optional")["optional"]
		r.config.optional[strings.ToUpper(name)] = parseBool(optional)
	}
	for _, p := range fields["partitions"].Entries() {
		r.partition(p)
	}

	slices.SortFunc(r.config.partitions, func(a, b partition) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(r.config.denials)
	return r.config
}

// reader builds a Config.
type reader struct {
	config *Config
	// classes are the lines of the classes read so far.
	classes map[string]int
}

func (r *reader) partition(f *classes.Field) {
	fields := f.Fields("l2Allocation", "l3Allocation", "mbAllocation", "classes")
	p := partition{name: f.Name, allocation: parseAllocation(fields, true)}
	for _, c := range fields["classes"].Entries() {
		p.classes = append(p.classes, r.class(c, fields))
	}
	slices.SortFunc(p.classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	r.config.partitions = append(r.config.partitions, p)
}

// class reads a class of a partition with these fields.
func (r *reader) class(f *classes.Field, partition map[string]*classes.Field) class {
	name := f.Name
	if name == rootClass {
		name = classes.SystemDefault
	}
	r.checkName(f, name)

	fields := f.Fields("l2Allocation", "l3Allocation", "mbAllocation", "kubernetes")
	for setting, field := range fields {
		if setting != "kubernetes" && partition[setting] == nil {
			field.Report("its partition has no %s; give the partition one, e.g. 100%%", setting)
		}
	}

	denied := false
	for _, deny := range fields["kubernetes"].Fields("denyPodAnnotation", "denyContainerAnnotation") {
		denied = parseBool(deny) || denied
	}
	if denied {
		r.config.denials = append(r.config.denials, f.Name)
	}
	return class{name, parseAllocation(fields, false)}
}

// checkName reports a class that cannot have a resctrl group of its own.
func (r *reader) checkName(f *classes.Field, name string) {
	switch {
	case name == classes.SystemDefault:
	case strings.ContainsAny(name, "/\n"), name == ".", name == "..":
		f.Report("a class name must not have %q or a line break, as it becomes a directory", "/")
	case len(GroupPrefix+name) > maxFileName:
		f.Report("a class name must not be longer than %d characters", maxFileName-len(GroupPrefix))
	}

	if line, ok := r.classes[name]; ok {
		f.Report("class %q is already in line %d; a class is in one partition", cmp.Or(name, rootClass), line)
	}
	r.classes[name] = f.Line()
}

// parseBool reads a boolean of YAML 1.1, as goresctrl does.
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
			L2: parseSettings(fields["l2Allocation"], (*classes.Field).IsScalar, parse),
			L3: parseSettings(fields["l3Allocation"], (*classes.Field).IsScalar, parse),
		},
		mb: parseSettings(fields["mbAllocation"], (*classes.Field).IsList, parseBandwidth),
	}
}

// parseSettings reads one value for all cache IDs, or a mapping from cache IDs to values.
func parseSettings[T any](f *classes.Field, isValue func(*classes.Field) bool, parse func(*classes.Field) T) []setting[T] {
	if f == nil {
		return nil
	}
	if isValue(f) {
		return []setting[T]{{key: allCaches, value: parse(f)}}
	}

	settings := []setting[T]{} // not nil: an empty mapping is all of the resource
	for _, entry := range f.Entries() {
		s := setting[T]{key: entry.Name, value: parse(entry)}
		if s.key != allCaches {
			var err error
			if s.ids, err = parseIDs(s.key); err != nil {
				entry.Report(`%q is no list of cache IDs: %v; write "all", or IDs as in "0-1,4"`, s.key, err)
			}
		}
		for _, other := range settings {
			if id, common := s.ids.common(other.ids); common {
				entry.Report("cache ID %d is in %q and in %q", id, other.key, s.key)
			}
		}
		settings = append(settings, s)
	}
	return settings
}

func parseShare(f *classes.Field, inPartition bool) share {
	if f.IsScalar() {
		return share{unified: parseProportionField(f, inPartition)}
	}
	fields := f.Fields(unified, code, data)
	if fields == nil {
		return nil
	}

	result := share{}
	for kind, field := range fields {
		result[kind] = parseProportionField(field, inPartition)
	}
	switch {
	case fields[code] != nil && fields[data] == nil:
		f.Report("has code but no data; give both, or only unified")
	case fields[data] != nil && fields[code] == nil:
		f.Report("has data but no code; give both, or only unified")
	}
	if fields[unified] == nil {
		f.Report("has no unified; it counts where code and data are not apart")
	}
	return result
}

func parseProportionField(f *classes.Field, inPartition bool) *proportion {
	text, ok := f.Text()
	if !ok {
		return nil
	}

	p, err := parseProportion(text)
	switch {
	case err != nil:
		f.Report("%v", err)
	case inPartition && p.ranged:
		f.Report(`%q: a partition has no range in per cent; write a share like "60%%", or bits`, text)
	case !inPartition && p.relative() && p.high == 0:
		f.Report("%q: a class cannot have none of a cache; write 1%% for the least possible", text)
	}
	return &p
}

// parseBandwidth reads the shares of one cache ID, like ["50%", "1000MBps"]. The first of a unit counts.
func parseBandwidth(f *classes.Field) bandwidth {
	var b bandwidth
	items := f.Items()
	for _, item := range items {
		if text, ok := item.Text(); ok {
			if err := b.add(text); err != nil {
				item.Report("%v", err)
			}
		}
	}

	if len(items) == 0 && f.IsList() {
		f.Report(`is empty; write ["50%%"], ["1000MBps"], or both`)
	}
	return b
}
