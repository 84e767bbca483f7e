// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

var _ classes.Drafter = (*Backend)(nil)

// Draft implements classes.Drafter. The class is in a partition with the whole cache and bandwidth. It has the same
// share of each cache: the largest share that a bound needs.
func (b *Backend) Draft(class string, bounds []classes.Bound) map[string]any {
	now := b.live.Load()
	info := now.machine.info
	cache, bandwidth := monitoring.SeriesOf(resctrl.Counter{Event: resctrl.LLCOccupancy}).Measure,
		monitoring.SeriesOf(resctrl.Counter{Event: resctrl.MBMTotal}).Measure
	percent, memory := uint64(0), 0.0
	for _, bound := range bounds {
		switch bound.Use.Measure {
		case cache:
			percent = max(percent, cachePercent(info, bound.Use.Part, bound.Value))
		case bandwidth:
			memory = max(memory, bound.Value)
		}
	}

	partition, settings := map[string]any{}, map[string]any{}
	if percent > 0 {
		partition["l3Allocation"], settings["l3Allocation"] = "100%", fmt.Sprintf("%d%%", percent)
	}
	if share := bandwidthText(info.Bandwidth, memory, now.memory); share != "" {
		partition["mbAllocation"], settings["mbAllocation"] = []any{"100%"}, []any{share}
	}
	if len(settings) == 0 {
		return nil
	}
	partition["classes"] = map[string]any{class: settings}
	return map[string]any{"partitions": map[string]any{"shared": partition}}
}

// cachePercent returns the smallest share of the L3 cache `id` that has at least `bytes` bytes, as a multiple of 5 per cent. It is
// 0 if the size of the cache is unknown.
func cachePercent(info resctrl.Info, id string, bytes float64) uint64 {
	number, err := strconv.Atoi(id)
	schemas := info.Schemas(resctrl.L3)
	if err != nil || len(schemas) == 0 {
		return 0
	}
	cache := info.Caches[schemas[0]]
	bit := float64(cache.BitBytes[number])
	if bit == 0 || bytes <= 0 {
		return 0
	}

	for percent := uint64(5); percent < 100; percent += 5 {
		mask, err := proportion{high: percent}.percentOf(cache.Mask, cache)
		if err == nil && float64(bits.OnesCount64(mask))*bit >= bytes {
			return percent
		}
	}
	return 100
}

// bandwidthText returns the setting for a bandwidth of one domain, or "" if there is none. `memory` is the bandwidth of all memory modules.
func bandwidthText(info *resctrl.BandwidthInfo, bytes, memory float64) string {
	switch {
	case info == nil || bytes == 0:
		return ""
	case info.Unit == resctrl.MBps:
		return fmt.Sprintf("%.0fMBps", math.Ceil(bytes/(1<<20)))
	case info.Unit == resctrl.EighthGBps:
		return fmt.Sprintf("%.0fMBps", math.Ceil(bytes/1e9*8)*125)
	}
	if percent := percentOf(bytes*float64(len(info.Domains)), memory); percent > 0 {
		return fmt.Sprintf("%d%%", percent)
	}
	return ""
}

// percentOf returns `part` in per cent of `whole`, rounded up to a multiple of 5. It is 0 if `whole` is 0, which means
// unknown.
func percentOf(part, whole float64) int {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return int(min(100, 5*math.Ceil(part/whole*20)))
}
