// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package volumeio

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/ioapply"
	"github.com/qos-nri/qos-nri-plugin/pkg/iocgroup"
)

// Config is a parsed volumeio section.
type Config struct{ classes []class }

// class has the limits that a class sets for each disk of a volume.
type class struct {
	name   string
	limits iocgroup.Value
	// limitsSharedDisks is true if the class may limit a disk that also has data outside of the volume.
	limitsSharedDisks bool
}

// ClassNames returns the sorted names of the classes.
func (c *Config) ClassNames() []string {
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = class.name
	}
	return names
}

// ParseConfig reads the section volumeio. It reports the problems that do not depend on the machine.
func ParseConfig(section *classes.Field) classes.BackendConfig {
	config := &Config{}
	for _, field := range section.Fields("classes")["classes"].Entries() {
		config.classes = append(config.classes, parseClass(field))
	}
	slices.SortFunc(config.classes, func(a, b class) int { return cmp.Compare(a.name, b.name) })
	return config
}

func parseClass(f *classes.Field) class {
	rates := limitFields()
	fields := f.Fields(append(rates[:], "sharedDisk")...)

	class := class{name: f.Name}
	set := false
	for kind, name := range rates {
		if text := fields[name].Scalar(); text != "" {
			set = true
			class.limits[kind] = ioapply.ParseQuantity(fields[name], text, minRate, iocgroup.MaxRate(kind))
		}
	}
	if !set {
		f.Report("%v", errNoLimit)
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

// limitFields returns the name of each limit in class files and in qos.VolumeLimits.
func limitFields() [iocgroup.RateKinds]string {
	return [iocgroup.RateKinds]string{"maxReadBps", "maxWriteBps", "maxReadIops", "maxWriteIops"}
}

var errNoLimit = errors.New("sets no limit; set at least one of maxReadBps, maxWriteBps, maxReadIops and maxWriteIops")

// minRate is the smallest limit that the kernel accepts in cgroup v2 (block/blk-throttle.c, tg_set_limit).
const minRate = 2

// claimedClasses describes the resource of claims. Its classes are VolumeAttributesClasses.
func claimedClasses() *classes.ClaimedClasses {
	return &classes.ClaimedClasses{Resource: classes.ClaimResource, Config: configOfLimits}
}

// configOfLimits returns a configuration with one class for each element of `limits`. The error joins all problems.
func configOfLimits(limits map[string]qos.VolumeLimits) (classes.BackendConfig, error) {
	config := &Config{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		values, err := valueOf(limits[name])
		for _, problem := range classes.SplitErrors(err) {
			errs = append(errs, fmt.Errorf("class %q: %w", name, problem))
		}
		config.classes = append(config.classes, class{name: name, limits: values})
	}
	return config, errors.Join(errs...)
}

// valueOf checks limits as parseClass does. The error joins all problems.
func valueOf(limits qos.VolumeLimits) (value iocgroup.Value, _ error) {
	if limits == (qos.VolumeLimits{}) {
		return value, errNoLimit
	}

	var errs []error
	for kind, limit := range [iocgroup.RateKinds]int64{limits.MaxReadBps, limits.MaxWriteBps, limits.MaxReadIops, limits.MaxWriteIops} {
		switch most := iocgroup.MaxRate(kind); {
		case limit == 0: // unlimited
		case limit < minRate:
			errs = append(errs, fmt.Errorf(`%s: "%d" is too small; the minimum is %d`, limitFields()[kind], limit, minRate))
		case uint64(limit) > most:
			errs = append(errs, fmt.Errorf(`%s: "%d" is too large; the maximum is %d`, limitFields()[kind], limit, most))
		default:
			value[kind] = uint64(limit)
		}
	}
	return value, errors.Join(errs...)
}
