// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"syscall"
)

// maxMBps is the bandwidth value that means "no limit" with the mount option mba_MBps.
const maxMBps = math.MaxUint32

// schema is one line of schemata files.
type schema struct {
	name    string
	cache   *Cache     // nil for bandwidth
	memory  *Bandwidth // nil for caches
	mbps    bool
	closids int
	domains []int
	// values has the values by CLOSID and domain.
	values []map[int]uint64
	// With CDP, peer is the DATA schema of a CODE schema, or the CODE schema of a DATA schema. Otherwise it is nil.
	peer *schema
}

func (s *schema) full() uint64 {
	switch {
	case s.cache != nil:
		return 1<<s.cache.Ways - 1
	case s.mbps:
		return maxMBps
	}
	return uint64(s.memory.Max)
}

func newSchema(name string, cache *Cache, memory *Bandwidth, closids int, domains []int) *schema {
	s := &schema{name: name, cache: cache, memory: memory, closids: closids, domains: domains}
	s.values = make([]map[int]uint64, closids)
	for closid := range s.values {
		s.values[closid] = map[int]uint64{}
	}
	return s
}

func (s *schema) reset(closid int) {
	for _, id := range s.domains {
		s.values[closid][id] = s.full()
	}
}

// group is a control group or, if it has a parent, a monitoring group.
type group struct {
	name   string
	parent *group
	closid int
	// exclusive is the mode of a control group.
	exclusive bool
	cpus      uint64
	mons      map[string]*group
	// counts has the text of each counter, by its path below the group. Other counters show 0.
	counts map[string]string
	// assigned has the counters of the group, by the path of their file below the group.
	assigned map[string]bool
}

func (g *group) control() *group {
	if g.parent != nil {
		return g.parent
	}
	return g
}

// mounted is the state of the filesystem from mount to unmount.
type mounted struct {
	options string
	vendor  Vendor
	// schemas is in the order of the lines in schemata files.
	schemas []*schema
	root    *group
	groups  map[string]*group
	closids []bool
	// `allRMIDs` is the number of RMIDs, and `rmids` is the number of free ones. `limbo` is the number of freed RMIDs
	// that still have cache lines.
	allRMIDs, rmids, limbo int
	// pmgs is the number of RMIDs of each control group on Arm. It is 0 on other CPUs.
	pmgs   int
	status string
	// ioAlloc has the masks of device traffic in each L3, in hexadecimal. It is nil if io_alloc is disabled.
	ioAlloc map[int]string
}

func (m *mounted) reportf(format string, args ...any) {
	m.status += fmt.Sprintf(format, args...) + "\n"
}

// mount mounts the filesystem. `options` has the form of mount(8).
func (f *FS) mount(options string) error {
	var wanted []string
	for option := range strings.SplitSeq(options, ",") {
		if option != "" {
			wanted = append(wanted, option)
		}
	}

	has := func(option string) bool { return slices.Contains(wanted, option) }
	spec := f.spec
	for _, option := range wanted {
		known := option == "cdp" && spec.L3 != nil && spec.L3.CDP ||
			option == "cdpl2" && spec.L2 != nil && spec.L2.CDP ||
			option == "mba_MBps" && spec.MB != nil && spec.Vendor == Intel
		if !known {
			return syscall.EINVAL
		}
	}

	if spec.NoKernel || spec.L2 == nil && spec.L3 == nil && spec.MB == nil && spec.RMIDs == 0 {
		return syscall.ENODEV
	}

	m := &mounted{options: strings.Join(wanted, ","), vendor: spec.Vendor, groups: map[string]*group{}}
	m.allRMIDs = spec.RMIDs
	// resctrl_arch_set_cdp_enabled in drivers/resctrl/mpam_resctrl.c
	apart := spec.Vendor == Arm && (has("cdp") || has("cdpl2"))
	if apart {
		m.allRMIDs /= 2
	}
	if spec.MB != nil && !apart {
		s := newSchema("MB", nil, spec.MB, spec.MB.CLOSIDs, spec.Domains)
		s.mbps = has("mba_MBps")
		m.schemas = append(m.schemas, s)
	}

	m.addCache("L2", spec.L2, has("cdpl2"), spec)
	m.addCache("L3", spec.L3, has("cdp"), spec)
	least := 1 << 16
	for _, s := range m.schemas {
		least = min(least, s.closids)
	}

	m.closids = make([]bool, least)
	m.closids[0] = true
	if spec.IOAlloc != "" && spec.IOAlloc != "disabled" {
		m.enableIOAlloc(spec, spec.IOAlloc)
	}
	m.root = &group{mons: map[string]*group{}, cpus: 1<<spec.CPUs - 1}
	for _, s := range m.schemas {
		s.reset(0)
	}

	m.rmids, m.limbo = m.allRMIDs-1-f.limbo, f.limbo
	if spec.TelemetryRMIDs > 0 { // a group needs an RMID of each feature
		m.rmids = min(m.rmids, spec.TelemetryRMIDs-1)
	}
	if spec.Vendor == Arm {
		m.pmgs = m.allRMIDs / least
	}
	f.live = m
	f.setDomains()
	f.assign(m.root)
	return nil
}

func (m *mounted) addCache(name string, cache *Cache, apart bool, spec Spec) {
	switch {
	case cache == nil:
	case apart:
		data := newSchema(name+"DATA", cache, nil, cache.CLOSIDs/2, cache.domains(spec))
		code := newSchema(name+"CODE", cache, nil, cache.CLOSIDs/2, cache.domains(spec))
		data.peer, code.peer = code, data
		m.schemas = append(m.schemas, data, code)
	default:
		m.schemas = append(m.schemas, newSchema(name, cache, nil, cache.CLOSIDs, cache.domains(spec)))
	}
}

// domains returns the cache IDs. The cache must not be nil. `spec` describes its machine.
func (c *Cache) domains(spec Spec) []int {
	if c.Domains != nil {
		return c.Domains
	}
	return spec.Domains
}

// sparse reports whether masks may have gaps.
func (c *Cache) sparse(vendor Vendor) bool { return c.MinBits == 0 || vendor == Arm }

// control returns all control groups.
func (m *mounted) control() []*group {
	groups := []*group{m.root}
	for _, g := range m.groups {
		groups = append(groups, g)
	}
	return groups
}

// overlaps simulates rdtgroup_cbm_overlaps. It reports whether a mask shares bits with another group. If `exclusive` is
// true, it checks only groups in exclusive mode. If `exclusive` is false, it also checks the bits that hardware shares.
func (m *mounted) overlaps(s *schema, id int, mask uint64, closid int, exclusive bool) bool {
	if !exclusive && mask&s.cache.Shareable != 0 {
		return true
	}

	for _, half := range []*schema{s, s.peer} {
		if half == nil {
			continue
		}
		for _, g := range m.control() {
			if g.closid != closid && (!exclusive || g.exclusive) && half.values[g.closid][id]&mask != 0 {
				return true
			}
		}
	}

	return false
}

// initial simulates __init_one_rdt_domain: a new group gets the bits that are shareable or unused.
func (m *mounted) initial(s *schema, id, closid int) (uint64, error) {
	value, used := s.cache.Shareable, s.cache.Shareable
	for _, g := range m.control() {
		if g.closid == closid {
			continue
		}
		theirs := s.values[g.closid][id]
		if s.peer != nil {
			theirs |= s.peer.values[g.closid][id]
		}
		used |= theirs
		if !g.exclusive {
			value |= theirs
		}
	}

	value |= s.full() &^ used
	if !s.cache.sparse(m.vendor) {
		value &^= value + value&-value // a mask without gaps is required, so only the lowest run of bits is kept
	}

	if bits.OnesCount64(value) < s.cache.MinBits {
		m.reportf("No space on %s:%d", s.name, id)
		return 0, syscall.ENOSPC
	}

	return value, nil
}
