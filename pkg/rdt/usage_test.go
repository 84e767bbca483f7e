// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

func measured(t *testing.T, b *Backend, class string) classes.Reading {
	t.Helper()
	reading, err := b.MeasureClass(t.Context(), class)
	must(t, err)
	return reading.Class
}

// TestTheUsageOfAClassIsThatOfItsGroup measures the class gold and the system default, with and without separate code
// and data.
func TestTheUsageOfAClassIsThatOfItsGroup(t *testing.T) {
	cdp := sim.IntelSpec()
	cdp.Options = "cdp"
	for name, spec := range map[string]sim.Spec{"Intel": sim.IntelSpec(), "AMD": sim.AMDSpec(), "code and data": cdp} {
		t.Run(name, func(t *testing.T) {
			fs := sim.New(spec)
			b := newBackend(fs, nil)
			apply(t, b, twoPartitions)
			fs.Count("", 1, "mbm_local_bytes", "100")
			measured(t, b, classes.SystemDefault) // the root group counts from its first reading
			fs.Count("qos-gold", 0, "llc_occupancy", "1048576")
			fs.Count("qos-gold", 1, "mbm_total_bytes", "4096")
			fs.Count("", 1, "mbm_local_bytes", "2148")

			gold, system := measured(t, b, "gold"), measured(t, b, classes.SystemDefault)
			for _, cache := range []string{"0", "1"} {
				want := classes.Reading{
					{Measure: "llc_occupancy_bytes", Part: cache}:                map[string]float64{"0": 1048576}[cache],
					{Measure: "memory_bandwidth_bytes_total", Part: cache}:       map[string]float64{"1": 4096}[cache],
					{Measure: "memory_bandwidth_local_bytes_total", Part: cache}: 0,
				}
				for series, value := range want {
					if got, ok := gold[series]; !ok || got != value {
						t.Errorf("%v is %v, %v; want %v", series, got, ok, value)
					}
				}
			}

			if got := system[classes.Series{Measure: "memory_bandwidth_local_bytes_total", Part: "1"}]; got != 2048 {
				t.Errorf("the system default has transferred %v bytes, want 2048", got)
			}

			if len(gold) != 6 {
				t.Errorf("gold has %d series, want 6: %v", len(gold), gold)
			}
		})
	}
}

func TestWithoutMonitoringThereIsNothingToMeasure(t *testing.T) {
	unmounted := sim.IntelSpec()
	unmounted.Unmounted = true
	for name, fs := range map[string]*sim.FS{"the class has no group": sim.New(sim.IntelSpec()), "resctrl is not mounted": sim.New(unmounted)} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(fs, nil)
			if diff := cmp.Diff(classes.Reading(nil), measured(t, b, "gold")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// measuresOf returns the sorted names of the measures of a reading.
func measuresOf(reading classes.Reading) []string {
	names := map[string]bool{}
	for series := range reading {
		names[series.Measure] = true
	}
	return slices.Sorted(maps.Keys(names))
}
