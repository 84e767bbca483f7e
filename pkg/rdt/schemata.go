// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schema is the name of a line of a schemata file: L2, L3, their CODE and DATA halves, MB, and whatever else a kernel has.
type Schema string

// MB is the schema of memory bandwidth.
const MB Schema = "MB"

// Level is the cache level of a schema, L2 or L3; empty if it is not of a cache.
func (s Schema) Level() string {
	if len(s) >= 2 && (s[:2] == L2 || s[:2] == L3) {
		return string(s[:2])
	}
	return ""
}

// Domains are the values of one schema by domain (cache ID).
type Domains map[int]uint64

// Schemata are the values of one resctrl group: bit masks for caches, per cent, MBps or the CPU's units for bandwidth.
type Schemata map[Schema]Domains

// ParseSchemata reads a schemata file (Documentation/arch/x86/resctrl.rst, "Reading/writing the schemata file").
// Groups that are being set up for pseudo-locking have lines without values; these come back without domains.
func ParseSchemata(data []byte) (Schemata, error) {
	schemata := Schemata{}
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		if text == "" {
			continue
		}
		name, values, ok := strings.Cut(text, ":")
		schema := Schema(strings.TrimSpace(name))
		if !ok || schema == "" || strings.ContainsAny(string(schema), " \t=;") {
			return nil, fmt.Errorf("schemata line %q: not of the form NAME:ID=VALUE;…", text)
		}
		if _, ok := schemata[schema]; ok {
			return nil, fmt.Errorf("schemata line %q: a second line of %s", text, schema)
		}
		domains, err := parseDomains(schema, strings.TrimSpace(values))
		if err != nil {
			return nil, fmt.Errorf("schemata line %q: %w", text, err)
		}
		schemata[schema] = domains
	}
	return schemata, nil
}

func parseDomains(schema Schema, text string) (Domains, error) {
	domains := Domains{}
	if text == "uninitialized" {
		return domains, nil
	}
	base := 10
	if schema.Level() != "" {
		base = 16
	}
	for entry := range strings.SplitSeq(text, ";") {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form ID=VALUE", entry)
		}
		id, err := strconv.ParseUint(strings.TrimSpace(name), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("domain: %w", err)
		}
		if _, ok := domains[int(id)]; ok {
			return nil, fmt.Errorf("domain %d is there twice", id)
		}
		if domains[int(id)], err = strconv.ParseUint(strings.TrimSpace(value), base, 64); err != nil {
			return nil, fmt.Errorf("value of domain %d: %w", id, err)
		}
	}
	return domains, nil
}

// String is the form in which schemata are written, one line a schema, in a stable order. Without values it is empty.
func (s Schemata) String() string {
	var text strings.Builder
	for _, schema := range slices.Sorted(maps.Keys(s)) {
		if len(s[schema]) > 0 {
			fmt.Fprintf(&text, "%s:%s\n", schema, s[schema].format(schema))
		}
	}
	return text.String()
}

func (d Domains) format(schema Schema) string {
	entries := make([]string, 0, len(d))
	for _, id := range slices.Sorted(maps.Keys(d)) {
		entries = append(entries, fmt.Sprintf("%d=%s", id, formatValue(schema, d[id])))
	}
	return strings.Join(entries, ";")
}

func formatValue(schema Schema, value uint64) string {
	if schema.Level() != "" {
		return strconv.FormatUint(value, 16)
	}
	return strconv.FormatUint(value, 10)
}

func (s Schemata) set(schema Schema, id int, value uint64) {
	if s[schema] == nil {
		s[schema] = Domains{}
	}
	s[schema][id] = value
}

func (s Schemata) clone() Schemata {
	c := make(Schemata, len(s))
	for schema, domains := range s {
		c[schema] = maps.Clone(domains)
	}
	return c
}

// restrictedTo keeps the values of s that other has too.
func (s Schemata) restrictedTo(other Schemata) Schemata {
	kept := Schemata{}
	for schema, domains := range other {
		for id := range domains {
			if value, ok := s[schema][id]; ok {
				kept.set(schema, id, value)
			}
		}
	}
	return kept
}

// overlay sets the values of other in s.
func (s Schemata) overlay(other Schemata) {
	for schema, domains := range other {
		for id, value := range domains {
			s.set(schema, id, value)
		}
	}
}
