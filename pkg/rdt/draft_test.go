// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"encoding/json"
	"math/bits"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestADraftedClassAllowsAtLeastTheGivenUse drafts a class for a given use of the cache and of the memory bandwidth, on
// machines whose memory bandwidth is in per cent and in MBps. Each limit of the class is at least the use. It is
// above the use by at most the steps in which it is rounded up.
func TestADraftedClassAllowsAtLeastTheGivenUse(t *testing.T) {
	occupied, moved := monitoring.SeriesOf(resctrl.Counter{Event: resctrl.LLCOccupancy, Domain: 1}), monitoring.SeriesOf(resctrl.Counter{Event: resctrl.MBMTotal, Domain: 1})
	dimms := append(module(17, 64, 16384, 3200, 0), 127, 4, 0, 0, 0, 0) // one module: 25.6 GB/s, half of it for each cache
	for name, machine := range map[string]struct {
		spec sim.Spec
		step float64 // the smallest difference between two bandwidths, in bytes per second
	}{
		"per cent": {sim.IntelSpec(), 1.28e9}, // 10 per cent of 12.8 GB/s
		"MBps":     {sim.AMDSpec(), 0.125e9},  // the unit of the CPU is 1/8 GB/s
	} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(withFirmware(sim.New(machine.spec), dimms), nil)
			apply(t, b, `partitions: {all: {l3Allocation: "100%", mbAllocation: ["100%"], classes: {all: {}}}}`)
			l3 := b.live.Load().machine.info.Caches[resctrl.L3]
			cache := float64(l3.BitBytes[1]) * float64(bits.OnesCount64(l3.Mask))
			use := map[classes.Series]float64{occupied: cache * 0.31, moved: 5.1e9}
			// A share of the cache is rounded up to a multiple of 5 per cent, and then to whole bits of a mask with 12 bits.
			slack := map[classes.Series]float64{occupied: cache/20 + cache/12, moved: machine.step}
			section, err := json.Marshal(b.Draft("new", []classes.Bound{{Use: occupied, Value: use[occupied]}, {Use: moved, Value: use[moved]}}))
			must(t, err)
			apply(t, b, string(section))

			promised := map[classes.Series]float64{}
			for _, p := range b.Promises(classes.Holder{}, "new") {
				promised[p.Use] = p.Bound
			}
			for series, least := range use {
				if got, most := promised[series], least+slack[series]; got < least || got > most {
					t.Errorf("%s of %s: the limit is %v, want %v to %v", series.Measure, section, got, least, most)
				}
			}
		})
	}
}

func TestNoClassIsDraftedWithoutABound(t *testing.T) {
	b := newBackend(sim.New(sim.IntelSpec()), nil)
	apply(t, b, twoPartitions)
	if got := b.Draft("new", nil); got != nil {
		t.Errorf("a class without limits is drafted: %v", got)
	}
}

// TestADraftedShareOfACacheHasAtLeastTheGivenSize drafts shares of caches whose masks have 4 to 20 bits. The kernel gives
// whole bits, and a share in per cent is rounded to these.
func TestADraftedShareOfACacheHasAtLeastTheGivenSize(t *testing.T) {
	for width := 4; width <= 20; width++ {
		cache := resctrl.CacheInfo{Mask: 1<<width - 1, BitBytes: map[int]uint64{0: 1000}}
		info := resctrl.Info{Caches: map[resctrl.Schema]resctrl.CacheInfo{resctrl.L3: cache}}
		for size := 100; size <= width*1000; size += 100 {
			percent := cachePercent(info, "0", float64(size))
			mask, err := proportion{high: percent}.percentOf(cache.Mask, cache)
			if got := bits.OnesCount64(mask) * 1000; err != nil || got < size {
				t.Errorf("%d bytes of a cache of %d: %d%% have %d bytes (%v)", size, width*1000, percent, got, err)
			}
		}
	}
}
