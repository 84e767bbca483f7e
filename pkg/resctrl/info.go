// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
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
	// RMIDs is the maximum number of control groups and monitoring groups together. It is 0 if the CPU cannot monitor caches.
	RMIDs int
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
	// MinBits is the minimum number of bits of a mask. It is 0 on AMD.
	MinBits int
	// Sparse reports whether masks may have gaps.
	Sparse bool
	// Domains has the cache IDs in ascending order.
	Domains []int
}

// BandwidthUnit is the unit of the values of the MB schema.
type BandwidthUnit string

const (
	// Percent is a percentage of the full bandwidth. Intel CPUs use it.
	Percent BandwidthUnit = "%"
	// MBps is the unit when resctrl is mounted with mba_MBps. The kernel then enforces the limit with a feedback loop.
	MBps BandwidthUnit = "MBps"
	// EighthGBps is an absolute limit in units of 1/8 GB/s. AMD CPUs use it.
	EighthGBps BandwidthUnit = "1/8 GB/s"
)

// BandwidthInfo describes the valid values of the MB schema.
type BandwidthInfo struct {
	Unit BandwidthUnit
	// Min is the smallest value. The kernel rounds values up to multiples of Granularity. The value Max means no limit.
	Min, Granularity, Max uint64
	// Domains has the cache IDs in ascending order.
	Domains []int
}

// Schemas returns the schemas of a cache level. It returns none if resctrl cannot divide the level. Otherwise it
// returns either the unified schema, or the CODE and the DATA schema.
func (i Info) Schemas(level string) []Schema {
	schemas := slices.Sorted(maps.Keys(i.Caches))
	return slices.DeleteFunc(schemas, func(s Schema) bool { return s.Level() != level })
}

// maxMBps is the value with which the kernel expresses "no limit" under mba_MBps (MBA_MAX_MBPS).
const maxMBps = 1<<32 - 1

// amdMaxBandwidth is the MB value that means "no limit" on all AMD CPUs so far. Limits are below it, because they
// have at most 11 bits (CPUID 0x80000020_EAX_x1).
const amdMaxBandwidth = 2048

// ParseInfo parses files below resctrl's directory info/. The keys of the map are paths, e.g. "L3/cbm_mask". `root` has
// the root group's schemata. `mbps` reports whether resctrl is mounted with mba_MBps.
func ParseInfo(files map[string][]byte, root Schemata, mbps bool) (Info, error) {
	parse := infoParser{files: files}
	info := Info{Caches: map[Schema]CacheInfo{}}

	for _, file := range slices.Sorted(maps.Keys(files)) {
		schema := Schema(path.Dir(file))
		switch name := path.Base(file); {
		case name == "num_closids":
			if n := parse.count(file); info.CLOSIDs == 0 || n < info.CLOSIDs {
				info.CLOSIDs = n
			}
		case file == "L3_MON/num_rmids":
			info.RMIDs = parse.count(file)
		case name == "cbm_mask" && schema.Level() != "":
			info.Caches[schema] = parse.cache(schema, root.IDs(schema))
		case name == "min_bandwidth" && schema == MB:
			info.Bandwidth = parse.bandwidth(root, mbps)
		}
	}
	info.CLOSIDs = max(1, info.CLOSIDs) // a CPU that can only monitor has just the root group
	return info, errors.Join(parse.problems...)
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

func (p *infoParser) cache(schema Schema, domains []int) CacheInfo {
	name := string(schema)
	info := CacheInfo{
		Mask:      p.number(name+"/cbm_mask", 16),
		Shareable: p.number(name+"/shareable_bits", 16),
		MinBits:   p.count(name + "/min_cbm_bits"),
		Domains:   domains,
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

func (p *infoParser) bandwidth(root Schemata, mbps bool) *BandwidthInfo {
	info := &BandwidthInfo{
		Unit:        Percent,
		Min:         p.number("MB/min_bandwidth", 10),
		Granularity: max(1, p.number("MB/bandwidth_gran", 10)),
		Max:         100,
		Domains:     root.IDs(MB),
	}

	largest := uint64(0)
	for _, id := range info.Domains {
		largest = max(largest, root[Domain{MB, id}])
	}

	switch {
	case mbps: // the kernel does not round the written value
		info.Unit, info.Min, info.Granularity, info.Max = MBps, 0, 1, maxMBps
	case info.Min == 0 || largest > 100:
		info.Unit, info.Max = EighthGBps, amdMaximum(largest)
	}
	return info
}

// amdMaximum returns the MB value that means "no limit" on this CPU. The value is a power of two. No kernel file has
// it, but new groups start with it. So amdMaximum derives it from the largest value of any group.
func amdMaximum(largest uint64) uint64 {
	if largest <= amdMaxBandwidth {
		return amdMaxBandwidth
	}
	return 1 << min(bits.Len64(largest-1), 63)
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
