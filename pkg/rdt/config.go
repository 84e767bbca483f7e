// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Config is an RDT configuration in goresctrl's format. Its settings have the same meaning as in goresctrl. ParseConfig
// has checked everything that does not depend on the CPU.
type Config struct {
	// optional has the options l2, l3 and mb whose field `optional` is true.
	optional map[string]bool
	// partitions are sorted by name.
	partitions []partition
	// denials has the classes with denyPodAnnotation or denyContainerAnnotation.
	denials   []string
	monitored monitoring.Selection
	// devices is the share of the L3 caches that device traffic gets. It is nil if the configuration does not set it.
	devices []setting[share]
}

type partition struct {
	name string
	allocation
	// withDevices is true if the partition gets the bits of caches that devices also use (shareable_bits).
	withDevices bool
	// classes are sorted by name. The class of the root group has the name classes.SystemDefault.
	classes []class
}

type class struct {
	name string
	allocation
}

// allocation is the share of each resource that a partition or class gets. A setting that the configuration lacks is nil.
type allocation struct {
	caches map[string][]setting[share]
	mb     []setting[bandwidth]
}

// setting is a value for some cache IDs.
type setting[T any] struct {
	// ids is nil if the setting applies to all cache IDs that have no setting of their own.
	ids   spans
	value T
}

// valueFor returns the setting for a cache ID or, if there is none, the setting for all IDs. If there is neither, it
// returns the parameter `otherwise`.
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

// ClassNames returns the sorted classes that containers can have. It leaves out the class of the root group, because
// that class is the system default.
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

// Sets implements classes.Setter.
func (c *Config) Sets() []classes.Setting { return []classes.Setting{{Name: classes.SettingClosID}} }

// classes iterates over all classes, together with the partition of each class.
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

// wantsCodeAndData reports whether the configuration has separate shares for code and data in a cache of the level.
func (c *Config) wantsCodeAndData(level string) bool {
	for _, a := range c.allocations() {
		if slices.ContainsFunc(a.caches[level], func(s setting[share]) bool { return s.value[code] != nil }) {
			return true
		}
	}
	return false
}

// onlyMBps reports whether the configuration gives some memory bandwidth in MBps, and none in per cent.
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

// mountFor mounts resctrl with the mount options of the configuration. If that fails, it tries again without the
// options that separate code and data, because every configuration also has unified shares.
func mountFor(host resctrl.FS, config *Config) error {
	options := config.mountOptions(true)
	err := resctrl.Mount(host, options)
	if fallback := config.mountOptions(false); err != nil && fallback != options {
		options = fallback
		err = resctrl.Mount(host, options)
	}

	if hasReason(err, resctrl.WrongMountOptions) {
		return unavailable(resctrl.WrongMountOptions, "the configuration needs resctrl mounted with -o %s, which this machine does not support; "+
			"also give memory bandwidth in per cent: %v", options, errors.Unwrap(errors.Unwrap(err)))
	}
	return asUnavailable(err)
}

// mountOptions returns the mount options that the configuration asks for.
func (c *Config) mountOptions(codeAndData bool) string {
	var options []string
	if codeAndData && c.wantsCodeAndData(resctrl.L3) {
		options = append(options, "cdp")
	}
	if codeAndData && c.wantsCodeAndData(resctrl.L2) {
		options = append(options, "cdpl2")
	}
	if c.onlyMBps() {
		options = append(options, "mba_MBps")
	}
	return strings.Join(options, ",")
}
