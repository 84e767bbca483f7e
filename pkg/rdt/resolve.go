// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Resolution is what a configuration means on one CPU.
type Resolution struct {
	// Groups are the schemata of every configured group, complete, by the group's name; the root group's is empty.
	Groups map[string]Schemata
	// Ignored says, by class, which of its optional settings this CPU does not have.
	Ignored map[string][]string
}

// ConfigError is a setting of a class or partition that cannot be had on this CPU.
type ConfigError struct {
	// Of is "class" or "partition".
	Of, Name string
	// Problem says what is wrong, and what would be right.
	Problem string
	// Err is what a caller may decide on; nil mostly.
	Err error
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s %q: %s", e.Of, e.Name, e.Problem) }

func (e *ConfigError) Unwrap() error { return e.Err }

// ErrBandwidthUnit is for bandwidth that is given only in a unit for which resctrl is not mounted.
var ErrBandwidthUnit = errors.New("resctrl is mounted for another unit of memory bandwidth")

// Resolve turns shares into the values that groups get on this CPU, as goresctrl does. All problems are joined.
func Resolve(config *Config, info Info) (*Resolution, error) {
	r := &resolver{config: config, info: info, result: &Resolution{Groups: map[string]Schemata{}, Ignored: map[string][]string{}}}
	for class := range config.classes() {
		r.result.Groups[GroupOf(class.name)] = Schemata{}
	}
	r.caches(L2)
	r.caches(L3)
	r.bandwidth()
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	return r.result, nil
}

type resolver struct {
	config   *Config
	info     Info
	result   *Resolution
	problems []error
}

func (r *resolver) problem(of, name, format string, args ...any) {
	r.report(&ConfigError{Of: of, Name: name, Problem: fmt.Sprintf(format, args...)})
}

// report keeps a problem, once: most are the same for every cache ID.
func (r *resolver) report(err *ConfigError) {
	if err.Of == "class" && err.Name == classes.SystemDefault {
		err.Name = rootClass
	}
	if !slices.ContainsFunc(r.problems, func(seen error) bool { return seen.Error() == err.Error() }) {
		r.problems = append(r.problems, err)
	}
}

func (r *resolver) ignored(class, what string) {
	r.result.Ignored[class] = append(r.result.Ignored[class], what)
}

// unsupported is for a resource that this CPU does not have. What classes ask of it must be optional.
func (r *resolver) unsupported(setting, option string, optional bool, asks func(class, partition) bool) {
	for class, p := range r.config.classes() {
		switch {
		case !asks(class, p):
		case optional:
			r.ignored(class.name, fmt.Sprintf("%s is not in effect: this machine cannot allocate it, and it is optional", setting))
		default:
			r.problem("class", class.name, "%s: this machine cannot allocate it; remove it, or set options.%s.optional: true", setting, option)
		}
	}
}

// kinds of cache use, in goresctrl's words.
const (
	unified = "unified"
	code    = "code"
	data    = "data"
)

// kindOf is which of the three counts for a schema.
func kindOf(schema Schema) string {
	switch strings.TrimPrefix(string(schema), schema.Level()) {
	case "CODE":
		return code
	case "DATA":
		return data
	}
	return unified
}

func (r *resolver) caches(level string) {
	schemas := r.info.Schemas(level)
	if len(schemas) == 0 {
		setting := strings.ToLower(level) + "Allocation"
		r.unsupported(setting, strings.ToLower(level), r.config.optional[level], func(c class, p partition) bool {
			return c.caches[level] != nil || p.caches[level] != nil
		})
		return
	}
	cache := r.info.Caches[schemas[0]]
	shares := r.partitions(level, cache)
	for class, p := range r.config.classes() {
		for _, id := range cache.Domains {
			wanted := cacheShare(class.caches[level], id)
			for _, schema := range schemas {
				r.classMask(class, schema, id, cache, shares.of(p.name, id, kindOf(schema), cache.Mask), wanted.of(kindOf(schema)))
			}
		}
	}
}

func (r *resolver) classMask(class class, schema Schema, id int, cache CacheInfo, base uint64, wanted *proportion) {
	mask := base
	if wanted != nil {
		var err error
		if mask, err = wanted.within(base, cache); err != nil {
			r.problem("class", class.name, "%s: %v", schema, err)
			return
		}
	}
	r.result.Groups[GroupOf(class.name)].set(schema, id, mask)
}

// share is what is wanted of one cache; what is nil is not said.
type share map[string]*proportion

func (s share) of(kind string) *proportion {
	if p := s[kind]; p != nil {
		return p
	}
	return s[unified]
}

// cacheShare returns the share of one cache, which is everything where a setting does not mention the cache ID, and empty
// without a setting.
func cacheShare(settings []setting[share], id int) share {
	if settings == nil {
		return share{}
	}
	return valueFor(settings, id, share{unified: {text: "100%", high: 100}})
}
