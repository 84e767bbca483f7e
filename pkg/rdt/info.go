// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

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

// The cache levels that resctrl can divide.
const (
	L2 = "L2"
	L3 = "L3"
)

// Info is what resctrl says of the CPU, under the options it is mounted with.
type Info struct {
	// CLOSIDs is how many control groups there can be, the root included: the least of all resources.
	CLOSIDs int
	// Caches has, for each level that can be divided, one schema, or CODE and DATA under the cdp and cdpl2 mount options.
	Caches map[Schema]CacheInfo
	// Bandwidth is nil when memory bandwidth cannot be allocated.
	Bandwidth *BandwidthInfo
}

// CacheInfo is what masks of a cache schema may be.
type CacheInfo struct {
	// Mask has all bits that can be given. Shareable bits are used by other hardware, too.
	Mask, Shareable uint64
	// MinBits is the least number of bits of a mask. It is 0 on AMD.
	MinBits int
	// Sparse masks may have gaps.
	Sparse bool
	// Domains are the cache IDs, ascending.
	Domains []int
}

// BandwidthUnit is what the numbers of an MB line count.
type BandwidthUnit string

const (
	// Percent of the full bandwidth: Intel.
	Percent BandwidthUnit = "%"
	// MBps is the kernel's feedback loop, with the mba_MBps mount option.
	MBps BandwidthUnit = "MBps"
	// EighthGBps is an absolute limit in units of 1/8 GB/s: AMD.
	EighthGBps BandwidthUnit = "1/8 GB/s"
)

// BandwidthInfo is what values of the MB schema may be.
type BandwidthInfo struct {
	Unit BandwidthUnit
	// Min is the least value; the kernel rounds up to multiples of Granularity. Max means no limit.
	Min, Granularity, Max uint64
	// Domains are the cache IDs, ascending.
	Domains []int
}

// Schemas of a cache level: none when it cannot be divided, otherwise the unified one, or CODE and DATA.
func (i Info) Schemas(level string) []Schema {
	var schemas []Schema
	for schema := range i.Caches {
		if schema.Level() == level {
			schemas = append(schemas, schema)
		}
	}
	slices.Sort(schemas)
	return schemas
}

// maxMBps is the kernel's value for no limit under mba_MBps (MBA_MAX_MBPS).
const maxMBps = 1<<32 - 1

// amdMaxBandwidth is AMD's value for no limit on all CPUs so far: the bit above the value (CPUID 0x80000020_EAX_x1).
const amdMaxBandwidth = 2048

//nolint:gochecknoglobals // data, never changed
var cacheSchemas = []Schema{"L2", "L2CODE", "L2DATA", "L3", "L3CODE", "L3DATA"}

// ParseInfo interprets the files below info/, named by their path in it ("L3/cbm_mask"), and the root group's schemata.
// mbps says whether the mount option mba_MBps is on.
func ParseInfo(files map[string][]byte, root Schemata, mbps bool) (Info, error) {
	parse := infoParser{files: files}
	info := Info{Caches: map[Schema]CacheInfo{}, CLOSIDs: parse.closids()}
	for _, schema := range cacheSchemas {
		if _, ok := files[string(schema)+"/cbm_mask"]; ok {
			info.Caches[schema] = parse.cache(schema, slices.Sorted(maps.Keys(root[schema])))
		}
	}
	if _, ok := files["MB/min_bandwidth"]; ok {
		info.Bandwidth = parse.bandwidth(root[MB], mbps)
	}
	return info, errors.Join(parse.problems...)
}

type infoParser struct {
	files    map[string][]byte
	problems []error
}

func (p *infoParser) number(file string, base int) uint64 {
	text := strings.TrimSpace(string(p.files[file]))
	value, err := strconv.ParseUint(text, base, 64)
	if err != nil {
		p.problems = append(p.problems, fmt.Errorf("resctrl info/%s: %w", file, err))
	}
	return value
}

func (p *infoParser) count(file string) int {
	return int(min(p.number(file, 10), 1<<16))
}

func (p *infoParser) closids() int {
	least := 0
	for _, file := range slices.Sorted(maps.Keys(p.files)) {
		if path.Base(file) != "num_closids" {
			continue
		}
		if n := p.count(file); least == 0 || n < least {
			least = n
		}
	}
	return least
}

func (p *infoParser) cache(schema Schema, domains []int) CacheInfo {
	name := string(schema)
	info := CacheInfo{
		Mask:      p.number(name+"/cbm_mask", 16),
		Shareable: p.number(name+"/shareable_bits", 16),
		MinBits:   p.count(name + "/min_cbm_bits"),
		Domains:   domains,
	}
	if info.Mask == 0 || info.Mask&(info.Mask+1) != 0 {
		p.problems = append(p.problems, fmt.Errorf("resctrl info/%s/cbm_mask: %#x is not a run of ones from bit 0", name, info.Mask))
	}
	// Before Linux 6.7 there is no such file, and only AMD, whose least number of bits is 0, has masks with gaps.
	if _, ok := p.files[name+"/sparse_masks"]; ok {
		info.Sparse = p.number(name+"/sparse_masks", 10) != 0
	} else {
		info.Sparse = info.MinBits == 0
	}
	return info
}

func (p *infoParser) bandwidth(root Domains, mbps bool) *BandwidthInfo {
	largest := uint64(0)
	for _, value := range root {
		largest = max(largest, value)
	}
	info := &BandwidthInfo{
		Unit:        Percent,
		Min:         p.number("MB/min_bandwidth", 10),
		Granularity: max(1, p.number("MB/bandwidth_gran", 10)),
		Max:         100,
		Domains:     slices.Sorted(maps.Keys(root)),
	}
	switch {
	case mbps:
		// The kernel keeps what is written, unrounded, and follows it as well as it can.
		info.Unit, info.Min, info.Granularity, info.Max = MBps, 0, 1, maxMBps
	case info.Min == 0 || largest > 100:
		info.Unit, info.Max = EighthGBps, amdMaximum(largest)
	}
	return info
}

// amdMaximum is the value for no limit. No file has it, but it is a power of two, and what groups begin with.
func amdMaximum(largest uint64) uint64 {
	if largest <= amdMaxBandwidth {
		return amdMaxBandwidth
	}
	return 1 << min(bits.Len64(largest-1), 63)
}
