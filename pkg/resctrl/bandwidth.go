// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"math/bits"
	"strings"
)

// BandwidthUnit is the unit of the values of the MB schema.
type BandwidthUnit string

const (
	// Percent is a percentage of the full bandwidth. CPUs of Intel and Arm use it.
	Percent BandwidthUnit = "%"
	// MBps is the unit when resctrl is mounted with mba_MBps. The kernel then enforces the limit with a feedback loop.
	MBps BandwidthUnit = "MBps"
	// EighthGBps is an absolute limit in units of 1/8 GB/s. AMD CPUs use it.
	EighthGBps BandwidthUnit = "1/8 GB/s"
)

// BandwidthInfo describes the valid values of the MB schema.
type BandwidthInfo struct {
	Unit BandwidthUnit
	// Min is the smallest value. The kernel rounds values to multiples of Granularity. The value Max means no limit.
	Min, Granularity, Max uint64
	// Steps is the number of steps of the hardware, if the kernel converts per cent to these steps, as for MPAM of Arm.
	// It is 0 if the kernel does not convert, or if each per cent is a step of its own.
	Steps uint64
	// Domains has the cache IDs in ascending order.
	Domains []int
}

// maxMBps is the value with which the kernel expresses "no limit" under mba_MBps (MBA_MAX_MBPS).
const maxMBps = 1<<32 - 1

// amdMaxBandwidth is the MB value that means "no limit" on all AMD CPUs so far. Limits are below it, because they
// have at most 11 bits (CPUID 0x80000020_EAX_x1).
const amdMaxBandwidth = 2048

// bandwidth reads what info/MB says about memory bandwidth. It returns nil if the kernel uses a unit that this package does not
// know, because then no value can be written.
func (p *infoParser) bandwidth(root Schemata, mbps bool) *BandwidthInfo {
	info := &BandwidthInfo{
		Unit:        Percent,
		Min:         max(p.number("MB/min_bandwidth", 10), p.described("min")),
		Granularity: max(1, p.number("MB/bandwidth_gran", 10)),
		Max:         100,
		Domains:     root.IDs(MB),
	}
	if mbps { // the kernel does not round the written value
		info.Unit, info.Min, info.Granularity, info.Max = MBps, 0, 1, maxMBps
		return info
	}

	largest := uint64(0)
	for _, id := range info.Domains {
		largest = max(largest, root[Domain{MB, id}])
	}
	unit, known := p.bandwidthUnit(largest)
	switch {
	case !known:
		return nil
	case unit == EighthGBps:
		info.Unit, info.Max = unit, amdMaximum(largest)
		if described := p.described("max"); described >= max(largest, 1) {
			info.Max = described
		}
	default:
		info.Steps = mpamSteps(info.Min, info.Granularity)
	}
	return info
}

// descriptionOfMB is the directory in which newer kernels describe the values of the MB schema ("Generic schema description" on
// the kernel's mailing list). A value is a multiple of unit * scale / resolution. The unit "all" is the whole bandwidth.
const descriptionOfMB = "MB/resource_schemata/MB/"

// bandwidthUnit returns the unit of the MB schema. Newer kernels describe the unit. `known` is false if this package
// does not know the described unit. On older kernels, the unit is 1/8 GB/s if delay_linear is 0, which only AMD has
// (__rdt_get_mem_config_amd in arch/x86/kernel/cpu/resctrl/core.c), or if `largest`, the largest value of any group, is
// above 100. Otherwise it is per cent. min_bandwidth does not show the unit: it is 0 on AMD, and on Arm with 8 or more
// bits of MBW_MAX (get_mba_min in drivers/resctrl/mpam_resctrl.c).
func (p *infoParser) bandwidthUnit(largest uint64) (unit BandwidthUnit, known bool) {
	text := func(file string) string { return strings.TrimSpace(string(p.files[file])) }
	switch described := text(descriptionOfMB + "unit"); {
	case described == "" && (text("MB/delay_linear") == "0" || largest > 100):
		return EighthGBps, true
	case described == "":
		return Percent, true
	default:
		scale, resolution := p.described("scale"), p.described("resolution")
		switch {
		case described == "all" && scale == 1 && resolution == 100:
			return Percent, true
		case described == "GBps" && scale == 1 && resolution == 8:
			return EighthGBps, true
		}
	}
	return "", false
}

// described returns a number of the description of the MB schema, or 0 if the kernel has none.
func (p *infoParser) described(file string) uint64 {
	if _, exists := p.files[descriptionOfMB+file]; !exists {
		return 0
	}
	return p.number(descriptionOfMB+file, 10)
}

// amdMaximum returns the MB value that means "no limit" on this CPU. The value is a power of two. No file of Linux 7.3 has
// it, but new groups start with it. So amdMaximum derives it from the largest value of any group.
func amdMaximum(largest uint64) uint64 {
	if largest <= amdMaxBandwidth {
		return amdMaxBandwidth
	}
	return 1 << min(bits.Len64(largest-1), 63)
}

// mpamSteps returns the number of steps of the MPAM hardware for which the kernel shows this minimum and this
// granularity (get_mba_min and get_mba_granularity in drivers/resctrl/mpam_resctrl.c). If there is none, it returns 0.
// With 128 steps and more, each per cent has a step of its own.
func mpamSteps(least, granularity uint64) uint64 {
	for steps := uint64(2); steps <= 64; steps *= 2 {
		if granularity == (100+steps-1)/steps && least == (100+steps/2)/steps {
			return steps
		}
	}
	return 0
}

// ReadBack returns the value that the kernel shows after a value was written. Max stays Max: a new group has Max
// without a write, and for other groups ToWrite finds a value that reads back as Max.
func (b BandwidthInfo) ReadBack(value uint64) uint64 {
	if value == b.Max {
		return value
	}
	return b.round(value)
}

// round simulates how the kernel rounds a written value.
func (b BandwidthInfo) round(value uint64) uint64 {
	if b.Unit == MBps { // only some kernels round
		return value
	}

	value = (value + b.Granularity - 1) / b.Granularity * b.Granularity // bw_validate in fs/resctrl/ctrlmondata.c
	if b.Steps == 0 {
		return value
	}
	// percent_to_mbw_max and mbw_max_to_percent in drivers/resctrl/mpam_resctrl.c. A step above the last one becomes the first
	// one, because the kernel has 16 bits for it: with 16 steps, 100 becomes 105, and 105 becomes 6.
	step := max((value*b.Steps+50)/100, 1) - 1
	return ((step%b.Steps+1)*100 + b.Steps/2) / b.Steps
}

// ToWrite returns the value to write so that the kernel shows `value`. With steps, the two values may differ: with 32
// steps, the kernel shows 13 for 12, and 16 for 13.
func (b BandwidthInfo) ToWrite(value uint64) uint64 {
	for written := value; b.Steps > 0 && written >= max(b.Min, 1); written-- {
		if b.round(written) == value {
			return written
		}
	}
	return value
}

// Near reports whether a value that was read back is as near to the written value as rounding allows: within one
// granularity of what ReadBack predicts. If Max was written, which means no limit, any larger value is near, too.
func (b BandwidthInfo) Near(written, got uint64) bool {
	if written == b.Max && got > written {
		return true
	}
	expected := b.ReadBack(written)
	if b.Faulty(written) {
		expected = written
	}
	return got == written || got < expected+b.Granularity && got+b.Granularity > expected
}

// Faulty reports whether a written value reads back as a value that rounding to a step does not explain.
func (b BandwidthInfo) Faulty(value uint64) bool {
	got := b.ReadBack(value)
	return max(got, value)-min(got, value) > 2*b.Granularity
}
