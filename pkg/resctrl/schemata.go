// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schema is the name at the start of a line in a schemata file: L2, L3, their CODE and DATA variants, or MB. This package
// neither reads nor writes lines with other names, such as SMBA, or L3_MAX and MB_HLIM of some kernels for Arm, because it does
// not know what their values mean.
type Schema string

// MB is the schema of memory bandwidth.
const MB Schema = "MB"

// Level returns the cache level of a schema, L2 or L3. For other schemas it returns "".
func (s Schema) Level() string {
	switch s {
	case L2, L2 + "CODE", L2 + "DATA":
		return L2
	case L3, L3 + "CODE", L3 + "DATA":
		return L3
	}
	return ""
}

func (s Schema) known() bool { return s == MB || s.Level() != "" }

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

// ParseSchemata reads a schemata file (Documentation/filesystems/resctrl.rst, "Reading/writing the schemata file"). It skips
// lines that do not begin with the name of a Schema. While pseudo-locking of a group is set up, the file has lines without
// values. ParseSchemata skips these lines, too.
func ParseSchemata(data []byte) (Schemata, error) {
	schemata, seen := Schemata{}, map[Schema]bool{}
	for line := range strings.Lines(string(data)) {
		text := strings.TrimSpace(line)
		name, values, _ := strings.Cut(text, ":")
		schema := Schema(strings.TrimSpace(name))
		if !schema.known() {
			continue
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
		id, err := strconv.ParseUint(strings.TrimSpace(name), 10, 32)
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
	for _, domain := range s.Domains() {
		if domain.Schema != previous {
			fmt.Fprintf(&text, "%s:%s\n", domain.Schema, s.Values(domain.Schema))
		}
		previous = domain.Schema
	}
	return text.String()
}

// Values returns the values of one schema in the format of a schemata file, as in "0=f;1=ff".
func (s Schemata) Values(schema Schema) string {
	var entries []string
	for _, id := range s.IDs(schema) {
		entries = append(entries, fmt.Sprintf("%d=%s", id, s.Value(Domain{schema, id})))
	}
	return strings.Join(entries, ";")
}

// Value returns the value of one domain in the format of a schemata file.
func (s Schemata) Value(d Domain) string { return strconv.FormatUint(s[d], d.Schema.base()) }

// Domains returns the sorted domains that have a value.
func (s Schemata) Domains() []Domain {
	return slices.SortedFunc(maps.Keys(s), func(a, b Domain) int {
		return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.ID, b.ID))
	})
}

// IDs returns the sorted cache IDs that have a value in one schema.
func (s Schemata) IDs(schema Schema) []int {
	var ids []int
	for _, domain := range s.Domains() {
		if domain.Schema == schema {
			ids = append(ids, domain.ID)
		}
	}
	return ids
}

// RestrictedTo returns the values that `s` has for the domains of the schemata `other`.
func (s Schemata) RestrictedTo(other Schemata) Schemata {
	kept := Schemata{}
	for domain := range other {
		if value, ok := s[domain]; ok {
			kept[domain] = value
		}
	}
	return kept
}

// For returns the values that `s` has for the domains of the schemata `other`. If `s` lacks a domain, because it has
// appeared with its CPUs, the value is that of the schema's first domain.
func (s Schemata) For(other Schemata) Schemata {
	values := s.RestrictedTo(other)
	for domain := range other {
		if _, known := s[domain]; known {
			continue
		}
		if ids := s.IDs(domain.Schema); len(ids) > 0 {
			values[domain] = s[Domain{domain.Schema, ids[0]}]
		}
	}
	return values
}
