// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"
)

// These are the cache levels that resctrl can divide.
const (
	L2 = "L2"
	L3 = "L3"
)

// Info is what resctrl reports about the CPU, under its current mount options.
type Info struct {
	// CLOSIDs is the maximum number of control groups, including the root group. It is the smallest num_closids of all resources.
	CLOSIDs int
	// DeviceCLOSIDs is the number of CLOSIDs that the kernel has reserved for device traffic (io_alloc).
	DeviceCLOSIDs int
	// RMIDs is the maximum number of control groups and monitoring groups together. It is 0 if the CPU cannot monitor
	// caches. It is the smallest num_rmids of all features, because telemetry can have fewer than caches. FewestRMIDs
	// is the name of the feature with this number, below info/.
	RMIDs       int
	FewestRMIDs string
	// AssignsCounters reports whether counters of memory bandwidth are assigned to groups now (mbm_event in
	// info/L3_MON/mbm_assign_mode).
	AssignsCounters bool
	// Counts has the events that the kernel counts (info/*/mon_features), sorted by name.
	Counts []Event
	// Caches has one schema for each cache level that resctrl can divide. Under the mount options cdp and cdpl2, a
	// level has the CODE and the DATA schema instead.
	Caches map[Schema]CacheInfo
	// Bandwidth is nil when memory bandwidth cannot be allocated.
	Bandwidth *BandwidthInfo
}

// CacheInfo describes the valid masks of a cache schema.
type CacheInfo struct {
	// Mask has all bits that can be allocated. Shareable has the bits of Mask that other hardware may use too.
	Mask, Shareable uint64
	// Devices has, by cache ID, the bits that device traffic uses (io_alloc_cbm). It is nil if io_alloc is not enabled.
	Devices Schemata
	// SharesWithDevices reports whether device traffic can have a mask of its own (io_alloc).
	SharesWithDevices bool
	// MinBits is the minimum number of bits of a mask. It is 0 on AMD.
	MinBits int
	// Sparse reports whether masks may have gaps.
	Sparse bool
	// Domains has the cache IDs in ascending order.
	Domains []int
	// BitBytes has the bytes of one bit of a mask, rounded down, by cache ID. It is empty if the kernel does not report them.
	BitBytes map[int]uint64
}

// Schemas returns the schemas of a cache level. It returns none if resctrl cannot divide the level. Otherwise it
// returns either the unified schema, or the CODE and the DATA schema.
func (i Info) Schemas(level string) []Schema {
	schemas := slices.Sorted(maps.Keys(i.Caches))
	return slices.DeleteFunc(schemas, func(s Schema) bool { return s.Level() != level })
}

// RMIDsOfClass returns how many RMIDs each control group and its monitoring groups have together on Arm. There, an RMID is a CLOSID (PARTID)
// with one of its PMGs, and num_rmids is the product of both numbers (resctrl_arch_system_num_rmid_idx in drivers/resctrl/mpam_resctrl.c).
func (i Info) RMIDsOfClass() int { return i.RMIDs / i.CLOSIDs }

// ParseInfo parses files below resctrl's directory info/. The keys of the map are paths, e.g. "L3/cbm_mask". `root` has
// the root group's schemata. `mbps` reports whether resctrl is mounted with mba_MBps.
func ParseInfo(files map[string][]byte, root Schemata, mbps bool) (Info, error) {
	parse := infoParser{files: files}
	info := Info{Caches: map[Schema]CacheInfo{}}

	for _, file := range slices.Sorted(maps.Keys(files)) {
		schema := Schema(path.Dir(file))
		switch name := path.Base(file); {
		case name == "num_closids":
			if n, ok := parse.closids(file, schema); ok && (info.CLOSIDs == 0 || n < info.CLOSIDs) {
				info.CLOSIDs = n
			}
		case file == monitoringInfo+"/num_rmids":
			info.RMIDs, info.FewestRMIDs = parse.count(file), monitoringInfo
		case name == "cbm_mask" && schema.Level() != "":
			info.Caches[schema] = parse.cache(schema, root.IDs(schema))
		case name == "min_bandwidth" && schema == MB:
			info.Bandwidth = parse.bandwidth(root, mbps)
		}
	}
	for file := range files {
		if n, ok := parse.limit(file); ok && path.Base(file) == "num_rmids" && n < info.RMIDs {
			info.RMIDs, info.FewestRMIDs = n, path.Dir(file)
		}
	}
	for _, level := range []string{L2, L3} {
		if schemas := info.Schemas(level); len(schemas) > 0 && info.Caches[schemas[0]].Devices != nil {
			info.DeviceCLOSIDs++
		}
	}
	info.Counts = countedEvents(files)
	info.CLOSIDs = max(1, info.CLOSIDs) // a CPU that can only monitor has just the root group
	return info, errors.Join(parse.problems...)
}

// countedEvents returns the events that the files mon_features have. It leaves out those that this package does not know.
func countedEvents(files map[string][]byte) (counted []Event) {
	for _, event := range []Event{CoreActivity, CoreEnergy, LLCOccupancy, MBMLocal, MBMTotal} {
		if slices.Contains(strings.Fields(string(files[event.Feature()+"/mon_features"])), string(event)) {
			counted = append(counted, event)
		}
	}
	return counted
}

type infoParser struct {
	files    map[string][]byte
	problems []error
}

func (p *infoParser) number(file string, base int) uint64 {
	value, err := strconv.ParseUint(strings.TrimSpace(string(p.files[file])), base, 64)
	if err != nil {
		p.problems = append(p.problems, fmt.Errorf("resctrl info/%s: %w", file, err))
	}
	return value
}

func (p *infoParser) count(file string) int { return int(min(p.number(file, 10), 1<<16)) }

// closids reads the number of CLOSIDs of a resource. A resource that this package does not know counts, too, because a group needs a
// CLOSID of all resources (closid_init in fs/resctrl/rdtgroup.c).
func (p *infoParser) closids(file string, schema Schema) (n int, ok bool) {
	if schema.known() {
		return p.count(file), true
	}
	return p.limit(file)
}

// limit reads a limit of a feature that this package may not know. `ok` is false if the file has no valid limit.
func (p *infoParser) limit(file string) (n int, ok bool) {
	value, err := strconv.ParseUint(strings.TrimSpace(string(p.files[file])), 10, 16)
	return int(value), err == nil && value > 0
}

func (p *infoParser) cache(schema Schema, domains []int) CacheInfo {
	name := string(schema)
	info := CacheInfo{
		Mask:      p.number(name+"/cbm_mask", 16),
		Shareable: p.number(name+"/shareable_bits", 16),
		MinBits:   p.count(name + "/min_cbm_bits"),
		Domains:   domains,
	}
	ioAlloc := string(bytes.TrimSpace(p.files[name+"/io_alloc"]))
	info.SharesWithDevices = ioAlloc == "enabled" || ioAlloc == "disabled"
	if ioAlloc == "enabled" {
		info.Devices = p.devices(schema)
	}
	if info.Mask&1 == 0 || !contiguous(info.Mask) {
		p.problems = append(p.problems, fmt.Errorf("resctrl info/%s/cbm_mask: %#x is not a contiguous mask from bit 0", name, info.Mask))
	}

	// The file sparse_masks exists since Linux 6.7. Older kernels allow gaps only on AMD CPUs, whose min_cbm_bits is 0.
	info.Sparse = info.MinBits == 0
	if _, ok := p.files[name+"/sparse_masks"]; ok {
		info.Sparse = p.number(name+"/sparse_masks", 10) != 0
	}
	return info
}

// devices reads io_alloc_cbm, whose lines have the form of a line in schemata without the name (resctrl_io_alloc_cbm_show in
// fs/resctrl/ctrlmondata.c).
func (p *infoParser) devices(schema Schema) Schemata {
	file := string(schema) + "/io_alloc_cbm"
	masks, err := ParseSchemata(fmt.Appendf(nil, "%s:%s", schema, p.files[file]))
	if err != nil && len(p.files[file]) > 0 {
		p.problems = append(p.problems, fmt.Errorf("resctrl info/%s: %w", file, err))
	}
	if masks == nil {
		masks = Schemata{}
	}
	return masks
}

// SharedBits returns the bits of a mask that devices or other hardware also use. If the kernel reports that devices may
// use the whole cache, as it does on Arm, SharedBits returns 0, because no class can have other bits.
func (c CacheInfo) SharedBits(domain Domain, mask uint64) uint64 {
	if c.Shareable == c.Mask {
		return 0
	}
	return mask & (c.Shareable | c.Devices[domain])
}

// LeastBits returns the minimum number of bits of a mask. A mask needs at least 1.
func (c CacheInfo) LeastBits() uint64 { return uint64(max(1, c.MinBits)) }

// Check returns why the kernel would refuse a mask, or nil.
func (c CacheInfo) Check(mask uint64) error {
	switch {
	case mask&^c.Mask != 0:
		return fmt.Errorf("mask %#x is wider than the cache, whose mask is %#x", mask, c.Mask)
	case !c.Sparse && !contiguous(mask):
		return fmt.Errorf("mask %#x has a gap; this CPU accepts only contiguous bits", mask)
	case uint64(bits.OnesCount64(firstRun(mask))) < c.LeastBits():
		return fmt.Errorf("mask %#x has too few bits; the minimum of this CPU is %d", mask, c.LeastBits())
	}
	return nil
}

// firstRun returns the lowest run of ones in a mask. Even on CPUs whose masks may have gaps, the kernel compares only the
// length of this run with the minimum number of bits (cbm_validate).
func firstRun(mask uint64) uint64 { return mask &^ (mask + mask&-mask) }

func contiguous(mask uint64) bool { return firstRun(mask) == mask }
