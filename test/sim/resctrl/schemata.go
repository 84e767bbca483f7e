// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// show simulates rdtgroup_schemata_show.
func (m *mounted) show(spec Spec, closid int) string {
	names, digits := m.widths(spec)
	var text strings.Builder
	for _, s := range m.schemas {
		if closid >= s.closids {
			continue
		}
		var entries []string
		for _, id := range s.domains {
			if s.cache != nil {
				entries = append(entries, fmt.Sprintf("%d=%0*x", id, digits, s.values[closid][id]))
			} else {
				entries = append(entries, fmt.Sprintf("%d=%*d", id, digits, s.values[closid][id]))
			}
		}
		fmt.Fprintf(&text, "%*s:%s\n", names, s.name, strings.Join(entries, ";"))
	}

	return text.String() + spec.Unknown.Lines
}

// widths returns the column widths, which do not depend on the mount options.
func (m *mounted) widths(spec Spec) (names, digits int) {
	for _, s := range m.schemas {
		width := len(s.name)
		if s.cache != nil && s.cache.CDP && s.peer == nil {
			width += len("CODE")
		}
		names = max(names, width)
		switch {
		case s.cache != nil:
			digits = max(digits, (s.cache.Ways+3)/4)
		case spec.Vendor == AMD:
			digits = max(digits, 4)
		default:
			digits = max(digits, 3)
		}
	}

	return names, digits
}

// size returns the content of the file "size", which has the size of each mask in bytes.
func (m *mounted) size(spec Spec, closid int) string {
	names, _ := m.widths(spec)
	var text strings.Builder
	for _, s := range m.schemas {
		var entries []string
		for _, id := range s.domains {
			value := s.values[closid][id]
			if s.cache != nil {
				value = uint64(s.cache.Size / s.cache.Ways * bits.OnesCount64(value))
			}
			entries = append(entries, fmt.Sprintf("%d=%d", id, value))
		}
		fmt.Fprintf(&text, "%*s:%s\n", names, s.name, strings.Join(entries, ";"))
	}

	return text.String()
}

type staged struct {
	schema *schema
	id     int
}

// writeSchemata simulates rdtgroup_schemata_write. It sets no value before it has validated all lines. With the
// mount option mba_MBps, however, it sets each bandwidth while it parses the line.
func (m *mounted) writeSchemata(g *group, data string) error {
	if !strings.HasSuffix(data, "\n") {
		return syscall.EINVAL
	}

	m.status = ""
	values := map[staged]uint64{}
	for line := range strings.SplitSeq(strings.TrimSuffix(data, "\n"), "\n") {
		name, rest, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !found {
			m.reportf("Missing ':'")
			return syscall.EINVAL
		}
		if rest == "" {
			m.reportf("Missing '%s' value", name)
			return syscall.EINVAL
		}
		at := slices.IndexFunc(m.schemas, func(s *schema) bool { return s.name == name && g.closid < s.closids })
		if at < 0 {
			m.reportf("Unknown or unsupported resource name '%s'", name)
			return syscall.EINVAL
		}
		if err := m.parseLine(m.schemas[at], g, rest, values); err != nil {
			return err
		}
	}

	for to, value := range values {
		to.schema.values[g.closid][to.id] = value
	}

	return nil
}

func (m *mounted) parseLine(s *schema, g *group, line string, values map[staged]uint64) error {
	for line != "" {
		var entry string
		entry, line, _ = strings.Cut(line, ";")
		id, text, found := strings.Cut(entry, "=")
		number, err := strconv.ParseUint(strings.TrimPrefix(id, "+"), 10, 64)
		if !found || err != nil {
			m.reportf("Missing '=' or non-numeric domain")
			return syscall.EINVAL
		}
		if !slices.Contains(s.domains, int(number)) {
			return syscall.EINVAL
		}
		to := staged{s, int(number)}
		if _, twice := values[to]; twice {
			m.reportf("Duplicate domain %d", number)
			return syscall.EINVAL
		}
		parse := m.parseMask
		if s.memory != nil {
			parse = m.parseBandwidth
		}
		value, ok := parse(s, g, to.id, strings.TrimSpace(text))
		switch {
		case !ok:
			return syscall.EINVAL
		case s.mbps:
			s.values[g.closid][to.id] = value
		default:
			values[to] = value
		}
	}

	return nil
}

// parseBandwidth simulates bw_validate.
func (m *mounted) parseBandwidth(s *schema, _ *group, _ int, text string) (uint64, bool) {
	value, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, 32)
	switch {
	case err != nil:
		m.reportf("Invalid MB value %s", text)
		return 0, false
	case s.mbps:
		return value, true
	case value < uint64(s.memory.Min) || value > uint64(s.memory.Max):
		m.reportf("MB value %d out of range [%d,%d]", value, s.memory.Min, s.memory.Max)
		return 0, false
	}
	gran := uint64(s.memory.Granularity)
	value = (value + gran - 1) / gran * gran
	if s.memory.Width > 0 {
		value = uint64(mpamPercent(mpamSetting(int(value), s.memory.Width), s.memory.Width))
	}
	return value, true
}

// mpamSetting simulates percent_to_mbw_max in drivers/resctrl/mpam_resctrl.c: per cent as the 16 bits of the register MBW_MAX.
func mpamSetting(percent, width int) uint16 {
	steps := max((percent<<width+50)/100, 1) - 1
	return uint16(steps << (16 - width)) //nolint:gosec // the kernel loses the higher bits, too
}

// mpamPercent simulates mbw_max_to_percent in drivers/resctrl/mpam_resctrl.c.
func mpamPercent(setting uint16, width int) int {
	return ((int(setting)>>(16-width)+1)*100 + 1<<width/2) >> width
}

// parseMask simulates parse_cbm.
func (m *mounted) parseMask(s *schema, g *group, id int, text string) (uint64, bool) {
	value, ok := m.validMask(s, text)
	switch {
	case !ok:
		return 0, false
	case m.overlaps(s, id, value, g.closid, true):
		m.reportf("Overlaps with exclusive group")
		return 0, false
	case g.exclusive && m.overlaps(s, id, value, g.closid, false):
		m.reportf("Overlaps with other group")
		return 0, false
	}
	return value, true
}

// validMask simulates cbm_validate.
func (m *mounted) validMask(s *schema, text string) (uint64, bool) {
	value, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimPrefix(text, "+"), "0x"), 16, 64)
	run := value &^ (value + value&-value)
	switch {
	case err != nil:
		m.reportf("Non-hex character in the mask %s", text)
	case s.cache.MinBits > 0 && value == 0, value > s.full():
		m.reportf("Mask out of range")
	case !s.cache.sparse(m.vendor) && run != value:
		m.reportf("The mask %x has non-consecutive 1-bits", value)
	case bits.OnesCount64(run) < s.cache.MinBits:
		m.reportf("Need at least %d bits in the mask", s.cache.MinBits)
	default:
		return value, true
	}

	return 0, false
}
