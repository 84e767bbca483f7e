// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"cmp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// VolumeConfig is a parsed volumeio section.
type VolumeConfig struct{ classes []volumeClass }

// volumeClass has the limits that a class sets for each disk of a volume.
type volumeClass struct {
	name   string
	limits iocgroup.Value
	// limitsSharedDisks is true if the class may limit a disk that also has data outside of the volume.
	limitsSharedDisks bool
}

// ClassNames returns the sorted names of the classes.
func (c *VolumeConfig) ClassNames() []string {
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = class.name
	}
	return names
}

// ParseVolumeConfig reads the section volumeio. It reports the problems that do not depend on the machine.
func ParseVolumeConfig(section *classes.Field) classes.BackendConfig {
	config := &VolumeConfig{}
	for _, field := range section.Fields("classes")["classes"].Entries() {
		config.classes = append(config.classes, parseVolumeClass(field))
	}
	slices.SortFunc(config.classes, func(a, b volumeClass) int { return cmp.Compare(a.name, b.name) })
	return config
}

func parseVolumeClass(f *classes.Field) volumeClass {
	rates := [iocgroup.RateKinds]string{"maxReadBps", "maxWriteBps", "maxReadIops", "maxWriteIops"}
	fields := f.Fields(append(rates[:], "sharedDisk")...)

	class := volumeClass{name: f.Name}
	set := false
	for kind, name := range rates {
		if text := fields[name].Scalar(); text != "" {
			set = true
			class.limits[kind] = parseQuantity(fields[name], text, minRate, iocgroup.MaxRate(kind))
		}
	}
	if !set {
		f.Report("sets no limit; set at least one of maxReadBps, maxWriteBps, maxReadIops and maxWriteIops")
	}

	switch shared := fields["sharedDisk"].Scalar(); shared {
	case "", "refuse":
	case "limit":
		class.limitsSharedDisks = true
	default:
		fields["sharedDisk"].Report("%q is neither refuse nor limit", shared)
	}
	return class
}

// minRate is the smallest limit that the kernel accepts in cgroup v2 (block/blk-throttle.c, tg_set_limit).
const minRate = 2
