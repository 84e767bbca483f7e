// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// Resolution is the result of resolving a configuration on one CPU.
type Resolution struct {
	// Groups has the complete schemata of every configured group, by group name. The name of the root group is empty.
	Groups map[string]resctrl.Schemata
	// Ignored says, by class, which settings have no effect on this machine.
	Ignored map[string][]string
	// Asked has the memory bandwidth that the configuration asks for, by group. The value in Groups may be higher, because the CPU has a
	// minimum.
	Asked map[string]resctrl.Schemata
	// Devices has the masks of device traffic in the L3 caches. It is nil if the configuration does not set them.
	Devices resctrl.Schemata
	// Sizes has a text like "gold has 6MiB of L3 for 5MiB" for each share of a cache that is a size.
	Sizes []string
}

// ConfigError is the error for a setting of a class or partition that this CPU does not support.
type ConfigError struct {
	// `Of` is "class" or "partition". Name is the name of this class or partition.
	Of, Name string
	// Problem describes the error and its remedy.
	Problem string
	// Err is the wrapped error, e.g. ErrBandwidthUnit. It may be nil.
	Err error
}

func (e *ConfigError) Error() string { return e.place() + ": " + e.Problem }

// place returns what the problem is about, e.g. `class "gold"`.
func (e *ConfigError) place() string { return fmt.Sprintf("%s %q", e.Of, e.Name) }

func (e *ConfigError) Unwrap() error { return e.Err }

// ErrBandwidthUnit is the error for a class whose memory bandwidth is only in per cent while resctrl is mounted with
// mba_MBps, or only in MBps while resctrl is mounted without mba_MBps.
var ErrBandwidthUnit = errors.New("resctrl is mounted for another unit of memory bandwidth")

// Resolve converts the shares in a configuration to the values of groups on this CPU, as goresctrl does. The returned
// error joins all problems.
func Resolve(config *Config, info resctrl.Info) (*Resolution, error) {
	r := &resolver{config: config, info: info, result: &Resolution{
		Groups: map[string]resctrl.Schemata{}, Ignored: map[string][]string{}, Asked: map[string]resctrl.Schemata{},
	}}
	for class := range config.classes() {
		r.result.Groups[groups.Of(class.name)] = resctrl.Schemata{}
	}

	r.caches(resctrl.L2)
	r.caches(resctrl.L3)
	r.bandwidth()
	if len(r.problems) == 0 {
		r.deviceTraffic()
	}
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return r.result, nil
}

func (r *Resolution) ignore(class, format string, args ...any) {
	r.Ignored[class] = append(r.Ignored[class], fmt.Sprintf(format, args...))
}

func (r *Resolution) ask(group string, domain resctrl.Domain, value uint64) {
	if r.Asked[group] == nil {
		r.Asked[group] = resctrl.Schemata{}
	}
	r.Asked[group][domain] = value
}

type resolver struct {
	config   *Config
	info     resctrl.Info
	result   *Resolution
	problems []error
}

func (r *resolver) problem(of, name, format string, args ...any) {
	r.report(&ConfigError{Of: of, Name: name, Problem: fmt.Sprintf(format, args...)})
}

// report adds a problem once. Most problems would otherwise appear for every cache ID.
func (r *resolver) report(err *ConfigError) {
	if err.Of == "class" && err.Name == classes.SystemDefault {
		err.Name = groups.RootClass
	}
	if !slices.ContainsFunc(r.problems, func(other error) bool { return other.Error() == err.Error() }) {
		r.problems = append(r.problems, err)
	}
}

// unsupported handles settings for a resource that this CPU cannot allocate: l2, l3 or mb. If the configuration marks the
// resource as optional, unsupported records the settings as ignored. Otherwise it reports them as problems.
func (r *resolver) unsupported(resource string, isSet func(class, partition) bool) {
	for class, p := range r.config.classes() {
		switch {
		case !isSet(class, p):
		case r.config.optional[resource]:
			r.result.ignore(class.name, "%sAllocation is an optional setting that this machine does not support", resource)
		default:
			r.problem("class", class.name, "%[1]sAllocation: this machine does not support the setting; "+
				"remove the setting, or set options.%[1]s.optional: true", resource)
		}
	}
}

// A share of a cache is for code, for data, or for both (unified). The names are those of goresctrl's configuration.
const (
	unified = "unified"
	code    = "code"
	data    = "data"
)

func kindOf(schema resctrl.Schema) string {
	switch strings.TrimPrefix(string(schema), schema.Level()) {
	case "CODE":
		return code
	case "DATA":
		return data
	}
	return unified
}

func (r *resolver) caches(level string) {
	schemas, resource := r.info.Schemas(level), strings.ToLower(level)
	if len(schemas) == 0 {
		r.unsupported(resource, func(c class, p partition) bool { return c.caches[level] != nil || p.caches[level] != nil })
		return
	}

	cache := r.info.Caches[schemas[0]]
	r.reportMissing(resource, cache.Domains, func(c class, p partition) spans {
		return missingIDs(slices.Concat(c.caches[level], p.caches[level]), cache.Domains)
	})
	for _, id := range cache.Domains {
		masks, err := r.partitionMasks(level, cache, id)
		if err != nil {
			r.problems = append(r.problems, err)
			return // the other cache IDs have the same problem
		}
		for class, p := range r.config.classes() {
			wanted := cacheShare(class.caches[level], id)
			for _, schema := range schemas {
				mask, err := wanted.of(kindOf(schema)).within(masks[kindOf(schema)][p.name], cache, id)
				if err != nil {
					r.problem("class", class.name, "%s: %v", schema, err)
				}
				r.size(class, cmp.Or(wanted.of(kindOf(schema)), cacheShare(p.caches[level], id).of(kindOf(schema))), schema, mask, id)
				r.result.Groups[groups.Of(class.name)][resctrl.Domain{Schema: schema, ID: id}] = mask
			}
		}
	}
}

// size records which size a class has, if the share of the class, or that of its partition, is a size.
func (r *resolver) size(c class, wanted *proportion, schema resctrl.Schema, mask uint64, id int) {
	if wanted == nil || wanted.bytes == 0 {
		return
	}
	has := sizeText(mask, r.info.Caches[schema], id)
	text := fmt.Sprintf("%s has %s of %s for %s", cmp.Or(c.name, groups.RootClass), has, schema, wanted.text)
	if !slices.Contains(r.result.Sizes, text) {
		r.result.Sizes = append(r.result.Sizes, text)
	}
}

// share is the part of one cache that a class or partition requests, by kind of use: unified, code or data.
type share map[string]*proportion

func (s share) of(kind string) *proportion {
	if p := s[kind]; p != nil {
		return p
	}
	return s[unified]
}

// cacheShare returns the share that the settings give to one cache ID. If there are settings, but none for this ID, the share
// is the whole cache. If there are no settings, the share is nil.
func cacheShare(settings []setting[share], id int) share {
	if settings == nil {
		return nil
	}
	return valueFor(settings, id, share{unified: {text: "100%", high: 100}})
}

func (r *resolver) bandwidth() {
	info := r.info.Bandwidth
	if info == nil {
		r.unsupported("mb", func(c class, p partition) bool { return c.mb != nil || p.mb != nil })
		return
	}

	r.reportMissing("mb", info.Domains, func(c class, p partition) spans {
		return missingIDs(slices.Concat(c.mb, p.mb), info.Domains)
	})
	for class, p := range r.config.classes() {
		for _, id := range info.Domains {
			// A partition gets at least the CPU's minimum, so that the percentages of its classes are never relative to 0.
			least := max(info.Min, 1)
			base := max(least, r.limit("partition", p.name, p.mb, id, info.Max))
			asked := r.limit("class", class.name, class.mb, id, base)
			value := max(least, asked)
			domain := resctrl.Domain{Schema: resctrl.MB, ID: id}
			r.result.ask(groups.Of(class.name), domain, asked)
			r.result.Groups[groups.Of(class.name)][domain] = value
			if info.Faulty(value) {
				wanted, got := resctrl.Schemata{domain: value}, resctrl.Schemata{domain: info.ReadBack(value)}
				r.result.leave(&faultError{group: groups.Of(class.name), wanted: wanted, got: got})
			}
		}
	}
}

// limit returns the bandwidth that the settings give to one domain. Percentages in the settings are relative to `base`.
func (r *resolver) limit(of, name string, settings []setting[bandwidth], id int, base uint64) uint64 {
	if settings == nil {
		return base
	}

	all, unlimited := uint64(100), uint64(math.MaxUint32)
	wanted := valueFor(settings, id, bandwidth{percent: &all, mbps: &unlimited})
	switch unit := r.info.Bandwidth.Unit; {
	case unit == resctrl.MBps && wanted.mbps != nil:
		return min(*wanted.mbps, base)
	case unit == resctrl.EighthGBps && wanted.mbps != nil:
		return min(max(1, *wanted.mbps*8/1000), base) // rounded down, but at least 1
	case unit == resctrl.EighthGBps:
		return max(1, *wanted.percent*base/100)
	case unit == resctrl.Percent && wanted.percent != nil:
		return *wanted.percent * base / 100
	}

	problem := `mbAllocation has no value in per cent, but resctrl is mounted without mba_MBps; ` +
		`add a value like "50%", or on Intel mount resctrl with -o mba_MBps`
	if wanted.mbps == nil {
		problem = `mbAllocation has no value in MBps, but resctrl is mounted with mba_MBps; add a value like "1000MBps", or mount resctrl without mba_MBps`
	}
	r.report(&ConfigError{Of: of, Name: name, Problem: problem, Err: ErrBandwidthUnit})
	return base
}
