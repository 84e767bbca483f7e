// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"encoding/json"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/monitoring"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestADraftedClassAllowsAtLeastTheGivenUse drafts classes for a given use, on machines whose memory bandwidth is in
// percent and in MBps. The limits of the class are at least this use, and above it by at most a tenth of the cache or
// of the bandwidth.
func TestADraftedClassAllowsAtLeastTheGivenUse(t *testing.T) {
	occupied, moved := monitoring.SeriesOf(resctrl.Counter{Event: resctrl.LLCOccupancy, Domain: 1}), monitoring.SeriesOf(resctrl.Counter{Event: resctrl.MBMTotal, Domain: 1})
	dimms := append(module(17, 64, 16384, 3200, 0), 127, 4, 0, 0, 0, 0) // one module: 25.6 GB/s, half of it for each cache
	for name, spec := range map[string]sim.Spec{"per cent": sim.IntelSpec(), "MBps": sim.AMDSpec()} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(firmware{sim.New(spec), dimms}, nil)
			apply(t, b, `partitions: {all: {l3Allocation: "100%", mbAllocation: ["100%"], classes: {all: {}}}}`)
			cache := cacheBytes(b.live.Load().machine.info, "1")
			asked := map[classes.Series]float64{occupied: cache * 0.31, moved: 5.1e9}
			section, err := json.Marshal(b.Draft("new", []classes.Bound{{Use: occupied, Value: asked[occupied]}, {Use: moved, Value: asked[moved]}}))
			if err != nil {
				t.Fatal(err)
			}
			apply(t, b, string(section))

			promised := map[classes.Series]float64{}
			for _, p := range b.Promises(classes.Holder{}, "new") {
				promised[p.Use] = p.Bound
			}
			for series, bound := range asked {
				if got := promised[series]; got < bound || got > bound+max(cache/10, 1.28e9) {
					t.Errorf("%s of %s: the limit is %v, want at least %v", series.Measure, section, got, bound)
				}
			}
			if got := b.Draft("new", nil); got != nil {
				t.Errorf("a class without limits is drafted: %v", got)
			}
		})
	}
}
