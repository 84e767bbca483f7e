// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"math/bits"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// shareTolerance is the fraction by which a class may exceed its share of a cache or of memory bandwidth. A mask limits
// only new lines, and older lines stay; the CPU and the kernel control bandwidth in steps of up to 10%.
const shareTolerance = 0.25

// bandwidthBurst is the memory traffic that passes before a feedback loop can react, in bytes.
const bandwidthBurst = 64 << 20

var _ classes.Promiser = (*Backend)(nil)

// Promises implements classes.Promiser. A class that has a whole cache, or the whole memory bandwidth, has no promise
// about it.
func (b *Backend) Promises(_ classes.Holder, class string) []classes.Promise {
	now := b.live.Load()
	schemata := now.effective[groups.Of(class)]
	if class == classes.SystemDefault || schemata == nil {
		return nil
	}
	return append(cachePromises(schemata, now.machine.info), bandwidthPromises(schemata, now.machine.info, now.memory)...)
}

// cachePromises returns the share of each L3 cache. With separate masks for code and data, a class can use both.
func cachePromises(schemata resctrl.Schemata, info resctrl.Info) (promises []classes.Promise) {
	schemas := info.Schemas(resctrl.L3)
	if len(schemas) == 0 {
		return nil
	}
	cache := info.Caches[schemas[0]]
	for _, id := range cache.Domains {
		mask := uint64(0)
		for _, schema := range schemas {
			mask |= schemata[resctrl.Domain{Schema: schema, ID: id}]
		}
		if mask == 0 || mask == cache.Mask {
			continue
		}
		used := monitoring.SeriesOf(resctrl.Counter{Event: resctrl.LLCOccupancy, Domain: id})
		p := classes.Promise{Name: "L3 share", Use: used, Remains: true, Tolerance: shareTolerance}
		if bytes := cache.BitBytes[id]; bytes > 0 {
			p.Bound = float64(bytes) * float64(bits.OnesCount64(mask))
		} else {
			p.Unknown = "the kernel does not report the size of the cache"
		}
		promises = append(promises, p)
	}
	return promises
}

// bandwidthPromises returns the memory bandwidth of each domain. `memory` is the bandwidth of all memory modules, or 0
// if it is unknown. 100 per cent is the maximum transfer rate of the modules, divided evenly between the domains.
func bandwidthPromises(schemata resctrl.Schemata, info resctrl.Info, memory float64) (promises []classes.Promise) {
	if info.Bandwidth == nil {
		return nil
	}
	for _, id := range info.Bandwidth.Domains {
		value := schemata[resctrl.Domain{Schema: resctrl.MB, ID: id}]
		if value == 0 || value >= info.Bandwidth.Max {
			continue
		}
		used := monitoring.SeriesOf(resctrl.Counter{Event: resctrl.MBMTotal, Domain: id})
		p := classes.Promise{Name: "memory bandwidth", Use: used, Burst: bandwidthBurst, Tolerance: shareTolerance}
		switch info.Bandwidth.Unit {
		case resctrl.MBps:
			// The kernel's feedback loop counts units of 2^20 bytes, of the local memory (mbm_bw_count and get_mba_mbps_default_event
			// in fs/resctrl).
			p.Name, p.Use, p.Bound = "MBps", monitoring.SeriesOf(resctrl.Counter{Event: resctrl.MBMLocal, Domain: id}), float64(value)*(1<<20)
		case resctrl.EighthGBps:
			p.Bound = float64(value) * 1e9 / 8
		case resctrl.Percent:
			p.Bound = memory * float64(value) / 100 / float64(len(info.Bandwidth.Domains))
		}
		if p.Bound == 0 {
			p.Unknown = "the firmware does not report the whole memory bandwidth, and the share of the class is in per cent"
		}
		promises = append(promises, p)
	}
	return promises
}
