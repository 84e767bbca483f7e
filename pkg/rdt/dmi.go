// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"bytes"
	"encoding/binary"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// dmiTable has the firmware's description of the machine.
const dmiTable = "/sys/firmware/dmi/tables/DMI"

// memoryBandwidth returns how many bytes all memory modules can transfer in a second, or 0 if the firmware does not say it.
func memoryBandwidth(host resctrl.FS) float64 {
	table, err := host.ReadFile(dmiTable)
	if err != nil {
		return 0
	}
	return modulesBandwidth(table)
}

// modulesBandwidth adds up the memory modules in an SMBIOS table (DSP0134, "Memory Device (Type 17)"). Two modules of one channel count
// twice, so the sum is never too low.
func modulesBandwidth(table []byte) (sum float64) {
	const memoryDevice, header = 17, 4
	for len(table) >= header {
		kind, length := table[0], int(table[1])
		if length < header || length > len(table) {
			return 0
		}
		if kind == memoryDevice {
			sum += moduleBandwidth(table[:length])
		}
		_, rest, found := bytes.Cut(table[length:], []byte{0, 0}) // the strings of the structure end with two zeros
		if !found {
			return sum
		}
		table = rest
	}
	return sum
}

// moduleBandwidth returns how many bytes one module can transfer in a second. It is 0 for an empty slot. Speeds are in
// million transfers per second. If the field with 16 bits is 0xFFFF, the field with 32 bits has the speed.
func moduleBandwidth(device []byte) float64 {
	const dataWidth, size, speed, extendedSpeed = 0x0a, 0x0c, 0x15, 0x54
	word := func(at int) int {
		if at+2 > len(device) {
			return 0
		}
		return int(binary.LittleEndian.Uint16(device[at:]))
	}
	transfers := word(speed)
	if transfers == 0xffff && extendedSpeed+4 <= len(device) {
		transfers = int(binary.LittleEndian.Uint32(device[extendedSpeed:]) & 0x7fffffff)
	}
	if width := word(dataWidth); word(size) != 0 && width != 0xffff {
		return float64(transfers) * 1e6 * float64(width) / 8
	}
	return 0
}
