// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// bitUsage returns what info/*/bit_usage shows, from what this program reads: shareable_bits, io_alloc_cbm, and the masks and modes of
// all groups (rdt_bit_usage_show in fs/resctrl/rdtgroup.c).
func bitUsage(info resctrl.Info, groups map[string]resctrl.Group, schema resctrl.Schema) string {
	cache := info.Caches[schema]
	var domains []string
	for _, id := range cache.Domains {
		domain := resctrl.Domain{Schema: schema, ID: id}
		by := map[resctrl.Mode]uint64{}
		for _, g := range groups {
			by[g.Mode] |= g.Schemata[domain]
		}
		var text strings.Builder
		for bit := bits.Len64(cache.Mask) - 1; bit >= 0; bit-- {
			has := func(mask uint64) bool { return mask>>bit&1 == 1 }
			hardware, software := has(cache.Shareable|cache.Devices[domain]), has(by[resctrl.Shareable])
			switch {
			case hardware && software:
				text.WriteByte('X')
			case hardware:
				text.WriteByte('H')
			case software:
				text.WriteByte('S')
			case has(by[resctrl.Exclusive]):
				text.WriteByte('E')
			case has(by[resctrl.PseudoLocked]):
				text.WriteByte('P')
			default:
				text.WriteByte('0')
			}
		}
		domains = append(domains, fmt.Sprintf("%d=%s", id, text.String()))
	}
	return strings.Join(domains, ";")
}

// TestBitUsageOfTheKernel computes info/*/bit_usage from other files, and compares it with the file of the kernel. So this program does
// not need to read the file. The test makes a class, and what another program can make: an exclusive group, and a mask of device traffic.
func TestBitUsageOfTheKernel(t *testing.T) {
	host := mountNewer(t, "L3/bit_usage", "")
	b := newBackend(host, nil)
	apply(t, b, `{partitions: {p: {l3Allocation: "0xf", classes: {a: , system/default: {l3Allocation: "0x3"}}}}}`)
	must(t, host.Mkdir(sim.MountPoint+"/alone"))
	must(t, host.WriteFile(sim.MountPoint+"/alone/schemata", []byte("L3:0=80;1=80\nL2:0=f0000;1=f0000\n")))
	must(t, host.WriteFile(sim.MountPoint+"/qos-a/schemata", []byte("L2:0=ffff;1=ffff\n")))
	must(t, host.WriteFile(sim.MountPoint+"/schemata", []byte("L2:0=ffff;1=ffff\n")))
	must(t, host.WriteFile(sim.MountPoint+"/alone/mode", []byte("exclusive\n")))

	// Last, because the CLOSID of device traffic has the whole L2, which an exclusive group must not overlap.
	if _, err := host.ReadFile(sim.MountPoint + "/info/L3/io_alloc"); err == nil {
		must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("1\n")))
		must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc_cbm", []byte("0=18;1=18\n")))
		defer func() { must(t, host.WriteFile(sim.MountPoint+"/info/L3/io_alloc", []byte("0\n"))) }()
	}

	info, groups, err := resctrl.At(host, sim.MountPoint).Read()
	must(t, err)
	used := ""
	for schema := range info.Caches {
		shown, err := host.ReadFile(sim.MountPoint + "/info/" + string(schema) + "/bit_usage")
		must(t, err)
		if diff := cmp.Diff(strings.TrimSpace(string(shown)), bitUsage(info, groups, schema)); diff != "" {
			t.Errorf("%s (-kernel +as read):\n%s", schema, diff)
		}
		used += string(shown)
	}
	for _, use := range "0ES" {
		if !strings.ContainsRune(used, use) {
			t.Errorf("no bit has the use %c: %s", use, used)
		}
	}
	must(t, host.Remove(sim.MountPoint+"/alone"))
	removeClasses(t, b)
}
