// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schema is the name at the start of a line in a schemata file: L2, L3, their CODE and DATA variants, MB, and the names
// that newer kernels add.
type Schema string

// MB is the schema of memory bandwidth.
const MB Schema = "MB"

// Level returns the cache level of a schema, L2 or L3. For other schemas it returns "".
func (s Schema) Level() string {
	if len(s) >= 2 && (s[:2] == L2 || s[:2] == L3) {
		return string(s[:2])
	}
	return ""
}

func (s Schema) base() int {
	if s.Level() != "" {
		return 16
	}
	return 10
}

// Domain is one cache, or one domain of memory bandwidth, within a schema.
type Domain struct {
	Schema Schema
	ID     int
}

func (d Domain) String() string { return fmt.Sprintf("%s %d", d.Schema, d.ID) }

// Schemata has the values of one resctrl group. The value of a cache is a bit mask. The value of memory bandwidth is in
// per cent, in MBps or in the CPU's own unit.
type Schemata map[Domain]uint64

// ParseSchemata reads a schemata file (Documentation/arch/x86/resctrl.rst, "Reading/writing the schemata file"). While
// pseudo-locking of a group is set up, the file has lines without values. ParseSchemata skips these lines.
func ParseSchemata(data []byte) (Schemata, error) {
	schemata, seen := Schemata{}, map[Schema]bool{}
	for line := range strings.Lines(string(data)) {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}

		name, values, ok := strings.Cut(text, ":")
		schema := Schema(strings.TrimSpace(name))
		if !ok || schema == "" || strings.ContainsAny(string(schema), " \t=;") {
			return nil, fmt.Errorf("schemata line %q: not of the form NAME:ID=VALUE;…", text)
		}
		if seen[schema] {
			return nil, fmt.Errorf("schemata line %q: second line for %s", text, schema)
		}

		seen[schema] = true
		if err := schemata.parseLine(schema, strings.TrimSpace(values)); err != nil {
			return nil, fmt.Errorf("schemata line %q: %w", text, err)
		}
	}
	return schemata, nil
}

func (s Schemata) parseLine(schema Schema, text string) error {
	if text == "uninitialized" {
		return nil
	}

	for entry := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form ID=VALUE", entry)
		}
		id, err := strconv.ParseUint(strings.TrimSpace(name), 10, 31)
		if err != nil {
			return fmt.Errorf("domain: %w", err)
		}

		domain := Domain{schema, int(id)}
		if _, ok := s[domain]; ok {
			return fmt.Errorf("domain %d appears twice", id)
		}
		if s[domain], err = strconv.ParseUint(strings.TrimSpace(value), schema.base(), 64); err != nil {
			return fmt.Errorf("value of domain %d: %w", id, err)
		}
	}
	return nil
}

// String returns the schemata in the format of a schemata file: one line for each schema, in a stable order.
func (s Schemata) String() string {
	var text strings.Builder
	var previous Schema
	for _, domain := range s.domains() {
		if domain.Schema != previous {
			fmt.Fprintf(&text, "%s:%s\n", domain.Schema, s.values(domain.Schema))
		}
		previous = domain.Schema
	}
	return text.String()
}

// values returns the values of one schema in the format of a schemata file, as in "0=f;1=ff".
func (s Schemata) values(schema Schema) string {
	var entries []string
	for _, id := range s.ids(schema) {
		entries = append(entries, fmt.Sprintf("%d=%s", id, s.value(Domain{schema, id})))
	}
	return strings.Join(entries, ";")
}

func (s Schemata) value(d Domain) string { return strconv.FormatUint(s[d], d.Schema.base()) }

func (s Schemata) domains() []Domain {
	return slices.SortedFunc(maps.Keys(s), func(a, b Domain) int {
		return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.ID, b.ID))
	})
}

func (s Schemata) ids(schema Schema) []int {
	var ids []int
	for _, domain := range s.domains() {
		if domain.Schema == schema {
			ids = append(ids, domain.ID)
		}
	}
	return ids
}

// restrictedTo returns the values that s has for the domains of the schemata other.
func (s Schemata) restrictedTo(other Schemata) Schemata {
	kept := Schemata{}
	for domain := range other {
		if value, ok := s[domain]; ok {
			kept[domain] = value
		}
	}
	return kept
}
