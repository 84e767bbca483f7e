// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"maps"
	"slices"
	"strings"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"
	"sigs.k8s.io/yaml"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// GroupPrefix begins the name of every resctrl group that is ours. All others are foreign, and are never changed.
const GroupPrefix = "qos-"

// rootGroup is the group in which everything is that no class was given to: resctrl's own top directory.
const rootGroup = ""

// maxFileName is what a Linux directory entry may have.
const maxFileName = 255

// GroupOf names the resctrl group of a class. The system default is the root group, whose name is empty.
func GroupOf(class string) string {
	if class == classes.SystemDefault {
		return rootGroup
	}
	return GroupPrefix + class
}

// Config is an RDT configuration in goresctrl's format, syntactically right.
type Config struct {
	options    goresctrl.Options
	partitions []partition
	// denials are classes with kubernetes options that refuse annotations.
	denials []string
}

type partition struct {
	name   string
	caches map[string]goresctrl.CatConfig // by level
	mb     goresctrl.MbaConfig
	// classes are sorted; the root group's is the system default.
	classes []class
}

type class struct {
	name   string
	caches map[string]goresctrl.CatConfig
	mb     goresctrl.MbaConfig
}

// ParseConfig reads goresctrl's RDT configuration. Each problem is a *classes.FieldError, all of them joined.
func ParseConfig(section []byte) (*Config, error) {
	if err := lint(section); err != nil {
		return nil, err
	}
	var raw goresctrl.Config
	if err := yaml.UnmarshalStrict(section, &raw); err != nil {
		return nil, yamlError(err)
	}
	return newConfig(&raw), nil
}

func newConfig(raw *goresctrl.Config) *Config {
	config := &Config{options: raw.Options}
	for _, name := range slices.Sorted(maps.Keys(raw.Partitions)) {
		from := raw.Partitions[name]
		p := partition{
			name:   name,
			caches: map[string]goresctrl.CatConfig{L2: from.L2Allocation, L3: from.L3Allocation},
			mb:     from.MBAllocation,
		}
		for _, name := range slices.Sorted(maps.Keys(from.Classes)) {
			c := from.Classes[name]
			p.classes = append(p.classes, class{
				name:   className(name),
				caches: map[string]goresctrl.CatConfig{L2: c.L2Allocation, L3: c.L3Allocation},
				mb:     c.MBAllocation,
			})
			if c.Kubernetes.DenyPodAnnotation || c.Kubernetes.DenyContainerAnnotation {
				config.denials = append(config.denials, name)
			}
		}
		config.partitions = append(config.partitions, p)
	}
	return config
}

// className is the class's name here: what goresctrl calls system/default is the system default.
func className(name string) string {
	if name == goresctrl.RootClassName {
		return classes.SystemDefault
	}
	return name
}

// ClassNames are the classes that containers can have, sorted. The one for the root group is not among them: it is the
// system default.
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

// classes goes through all classes, each with its partition.
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

func (c *Config) optional(level string) bool {
	if level == L2 {
		return c.options.L2.Optional
	}
	return c.options.L3.Optional
}

// wantsCodeAndData says whether some cache of the level is configured with code and data apart.
func (c *Config) wantsCodeAndData(level string) bool {
	apart := func(caches map[string]goresctrl.CatConfig) bool {
		for _, share := range caches[level] {
			if share.Code != "" {
				return true
			}
		}
		return false
	}
	for _, p := range c.partitions {
		if apart(p.caches) || slices.ContainsFunc(p.classes, func(c class) bool { return apart(c.caches) }) {
			return true
		}
	}
	return false
}

// onlyMBps says whether some memory bandwidth is given in MBps and none in per cent.
func (c *Config) onlyMBps() bool {
	percent, mbps := false, false
	look := func(config goresctrl.MbaConfig) {
		for _, entries := range config {
			for _, entry := range entries {
				percent = percent || strings.HasSuffix(string(entry), string(Percent))
				mbps = mbps || strings.HasSuffix(string(entry), string(MBps))
			}
		}
	}
	for _, p := range c.partitions {
		look(p.mb)
		for _, class := range p.classes {
			look(class.mb)
		}
	}
	return mbps && !percent
}
