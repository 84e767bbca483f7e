// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// module returns a structure of an SMBIOS table. The kind 17 is a memory module: `width` is in bits, `size` in MB, and `speed` in
// millions of transfers per second. If `speed` is 0xffff, the field `extended` has it.
func module(kind byte, width, size, speed uint16, extended uint32) []byte {
	const length = 0x5c
	device := make([]byte, length)
	device[0], device[1] = kind, length
	binary.LittleEndian.PutUint16(device[0x0a:], width)
	binary.LittleEndian.PutUint16(device[0x0c:], size)
	binary.LittleEndian.PutUint16(device[0x15:], speed)
	binary.LittleEndian.PutUint32(device[0x54:], extended)
	return slices.Concat(device, []byte("DIMM A1\x00Vendor\x00\x00"))
}

func TestTheBandwidthOfAllMemoryModulesIsAddedUp(t *testing.T) {
	join := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	end := []byte{127, 4, 0, 0, 0, 0} // a structure of the kind 127 ends the table
	for _, test := range []struct {
		name  string
		table []byte
		want  float64
	}{
		{"two modules of DDR4-3200", join(module(17, 64, 16384, 3200, 0), module(17, 64, 16384, 3200, 0), end), 51.2e9},
		{"an empty slot, and another structure", join(module(17, 64, 0, 3200, 0), module(16, 64, 16384, 3200, 0), module(17, 64, 16384, 3200, 0), end), 25.6e9},
		{"a speed in the extended field", join(module(17, 64, 16384, 0xffff, 70000), end), 560e9},
		{"an unknown width or speed", join(module(17, 0xffff, 16384, 3200, 0), module(17, 64, 16384, 0, 0), end), 0},
		{"a cut table", module(17, 64, 16384, 3200, 0)[:40], 0},
		{"nothing", nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := modulesBandwidth(test.table); got != test.want {
				t.Errorf("got %g bytes a second, want %g", got, test.want)
			}
		})
	}
}

func FuzzMemoryModules(f *testing.F) {
	f.Add(module(17, 64, 16384, 3200, 0))
	f.Add([]byte{17, 3, 0, 0})
	f.Fuzz(func(t *testing.T, table []byte) {
		if got := modulesBandwidth(table); got < 0 {
			t.Errorf("%v bytes a second", got)
		}
	})
}

// withFirmware adds an SMBIOS table to a machine. If `table` is nil, the machine has none.
func withFirmware(machine *sim.FS, table []byte) resctrl.FS {
	return altered{machine, func(path string, data []byte, err error) ([]byte, error) {
		if path == dmiTable && table != nil {
			return table, nil
		}
		return data, err
	}}
}

// TestAShareOfBandwidthIsComparedWithTheRateOfTheMemoryModules has a memory module with 25.6 GB/s. Each of two caches gets half of
// this rate.
func TestAShareOfBandwidthIsComparedWithTheRateOfTheMemoryModules(t *testing.T) {
	bounds := func(table []byte) (bounds, unknown map[string]float64) {
		b := newBackend(withFirmware(sim.New(sim.IntelSpec()), table), nil)
		apply(t, b, `partitions: {all: {l3Allocation: "100%", mbAllocation: ["100%"], classes: {half: {mbAllocation: ["50%"]}, all: {}}}}`)
		if all := b.Promises(classes.Holder{}, "all"); len(all) > 0 {
			t.Errorf("a class with everything promises %+v", all)
		}
		bounds, unknown = map[string]float64{}, map[string]float64{}
		for _, p := range b.Promises(classes.Holder{}, "half") {
			if p.Unknown != "" {
				unknown[p.Use.Part] = p.Bound
			} else {
				bounds[p.Use.Part] = p.Bound
			}
		}
		return bounds, unknown
	}

	known, _ := bounds(append(module(17, 64, 16384, 3200, 0), 127, 4, 0, 0, 0, 0))
	if diff := cmp.Diff(map[string]float64{"0": 6.4e9, "1": 6.4e9}, known); diff != "" {
		t.Errorf("bytes a second by cache (-want +got):\n%s", diff)
	}
	if _, unknown := bounds(nil); len(unknown) != 2 {
		t.Errorf("without a table of the firmware, %d bounds are unknown, want 2", len(unknown))
	}
}
