// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"slices"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// GroupPrefix is the prefix of the resctrl groups that this program manages. It never changes other groups.
	GroupPrefix = "qos-"
	// rootGroup is the group of everything without a class: the top directory of resctrl.
	rootGroup = ""
	// rootClass is the name of the root group's class in configurations.
	rootClass = goresctrl.RootClassName
	// maxFileName is the length limit of a Linux directory entry.
	maxFileName = 255
)

// GroupOf returns the resctrl group of a class. The system default is the root group, whose name is empty.
func GroupOf(class string) string {
	if class == classes.SystemDefault {
		return rootGroup
	}
	return GroupPrefix + class
}

// Config is an RDT configuration with goresctrl's format and meaning, checked as far as that is possible without a CPU.
type Config struct {
	options goresctrl.Options
	// partitions are sorted by name.
	partitions []partition
	// denials are classes with kubernetes options that refuse annotations.
	denials []string
}

type partition struct {
	name string
	allocation
	// classes are sorted by name; the root group's is the system default.
	classes []class
}

type class struct {
	name string
	allocation
}

// allocation is the share of each resource that a partition or class gets. A setting that is nil is absent.
type allocation struct {
	// caches are by level.
	caches map[string][]setting[share]
	mb     []setting[bandwidth]
}

// setting is a value for some cache IDs.
type setting[T any] struct {
	// ids are nil for all cache IDs without a value of their own.
	ids   spans
	value T
}

// settingsOf derives the settings of a goresctrl.CatConfig or MbaConfig. Problems in it were reported when it was read.
func settingsOf[V, T any](values map[string]V, derive func(V) T) []setting[T] {
	if values == nil {
		return nil
	}
	settings := []setting[T]{} // not nil: an empty mapping is all of the resource
	for key, value := range values {
		ids, _ := parseIDs(key)
		settings = append(settings, setting[T]{ids, derive(value)})
	}
	return settings
}

// newShare derives the share of one cache ID.
func newShare(config goresctrl.CacheIdCatConfig) share {
	s := share{}
	for kind, text := range map[string]goresctrl.CacheProportion{unified: config.Unified, code: config.Code, data: config.Data} {
		if p, err := parseProportion(string(text)); err == nil {
			s[kind] = &p
		}
	}
	return s
}

// newBandwidth derives the bandwidth of one cache ID. The first of a unit counts.
func newBandwidth(config goresctrl.CacheIdMbaConfig) (b bandwidth) {
	for _, entry := range config {
		_ = b.add(string(entry))
	}
	return b
}

// valueFor returns the value for a cache ID: its own, or that of all, or otherwise.
func valueFor[T any](settings []setting[T], id int, otherwise T) T {
	for _, s := range settings {
		switch {
		case s.ids.contains(id):
			return s.value
		case s.ids == nil:
			otherwise = s.value
		}
	}
	return otherwise
}

// ClassNames returns the classes that containers can have, sorted. The root group's class is the system default, and is left out.
func (c *Config) ClassNames() []string {
	var names []string
	for class := range c.classes() {
		if class.name != classes.SystemDefault {
			names = append(names, class.name)
		}
	}
	slices.Sort(names)
	return names
}

// classes iterates over all classes, each with its partition.
func (c *Config) classes() func(yield func(class, partition) bool) {
	return func(yield func(class, partition) bool) {
		for _, p := range c.partitions {
			for _, class := range p.classes {
				if !yield(class, p) {
					return
				}
			}
		}
	}
}

// allocations returns those of all partitions and classes.
func (c *Config) allocations() []allocation {
	var all []allocation
	for _, p := range c.partitions {
		all = append(all, p.allocation)
		for _, class := range p.classes {
			all = append(all, class.allocation)
		}
	}
	return all
}

// wantsCodeAndData reports whether a cache of the level has separate shares for code and data.
func (c *Config) wantsCodeAndData(level string) bool {
	for _, a := range c.allocations() {
		if slices.ContainsFunc(a.caches[level], func(s setting[share]) bool { return s.value[code] != nil }) {
			return true
		}
	}
	return false
}

// onlyMBps reports whether some memory bandwidth is given in MBps and none in per cent.
func (c *Config) onlyMBps() bool {
	percent, mbps := false, false
	for _, a := range c.allocations() {
		for _, s := range a.mb {
			percent = percent || s.value.percent != nil
			mbps = mbps || s.value.mbps != nil
		}
	}
	return mbps && !percent
}
