// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"math/bits"
	"strconv"
	"strings"
)

// addSizes derives the size of one bit of each cache from the root group's file size, whose lines are like "L3:0=16777216;1=16777216"
// (rdtgroup_size_show in fs/resctrl/rdtgroup.c), and from its masks.
func (i Info) addSizes(text string, root Schemata) {
	for line := range strings.Lines(text) {
		name, domains, _ := strings.Cut(strings.TrimSpace(line), ":")
		cache, known := i.Caches[Schema(name)]
		if !known {
			continue
		}
		cache.BitBytes = map[int]uint64{}
		for id, number := range byCache(domains) {
			mask := uint64(bits.OnesCount64(root[Domain{Schema(name), id}]))
			if size, err := strconv.ParseUint(number, 10, 64); err == nil && mask > 0 && size >= mask {
				cache.BitBytes[id] = size / mask
			}
		}
		i.Caches[Schema(name)] = cache
	}
}

// Bits returns how many bits a size needs in one cache, rounded up. It returns 0 if the size of a bit is not known. The
// kernel rounds the size of a bit down to bytes. Bits corrects this, so that a size does not need one bit too many.
func (c CacheInfo) Bits(id int, bytes uint64) uint64 {
	bit := c.BitBytes[id]
	if bit == 0 {
		return 0
	}
	return (bytes + bit) / (bit + 1)
}
