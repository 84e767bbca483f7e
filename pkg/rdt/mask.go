// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"fmt"
	"math/bits"
)

func (c CacheInfo) leastBits() uint64 { return uint64(max(1, c.MinBits)) }

// legal says whether the CPU takes a mask.
func (c CacheInfo) legal(mask uint64) error {
	switch {
	case mask&^c.Mask != 0:
		return fmt.Errorf("mask %#x is wider than the cache, whose mask is %#x", mask, c.Mask)
	case !c.Sparse && !contiguous(mask):
		return fmt.Errorf("mask %#x has a gap; this CPU takes only a single run of ones", mask)
	case uint64(bits.OnesCount64(firstRun(mask))) < c.leastBits():
		return fmt.Errorf("mask %#x has too few bits; this CPU takes no less than %d", mask, c.leastBits())
	}
	return nil
}

// firstRun is the lowest run of ones. The kernel counts only its bits, also where masks may have gaps (cbm_validate).
func firstRun(mask uint64) uint64 {
	return mask &^ (mask + mask&-mask)
}

func contiguous(mask uint64) bool { return firstRun(mask) == mask }

// within is the part of base that is wanted.
func (p proportion) within(base uint64, cache CacheInfo) (uint64, error) {
	if p.relative() {
		return p.percentOf(base, cache)
	}
	shift := bits.TrailingZeros64(base)
	mask := p.mask << shift
	if mask>>shift != p.mask || mask&^base != 0 {
		return 0, fmt.Errorf("%s, counted from bit %d, leaves its partition, whose mask is %#x", p.text, shift, base)
	}
	return mask, cache.legal(mask)
}

// percentOf counts per cent of the set bits of base, from its lowest one. The range grows to the least that the CPU
// takes, downwards first.
func (p proportion) percentOf(base uint64, cache CacheInfo) (uint64, error) {
	width := uint64(bits.OnesCount64(base))
	least := cache.leastBits()
	if width < least {
		return 0, fmt.Errorf("%s: its partition has mask %#x, fewer bits than the %d that this CPU needs", p.text, base, least)
	}
	if p.high == 0 {
		return 0, fmt.Errorf("%s is none of the cache; write 1%% for the least possible", p.text)
	}
	first := (max(p.low, 1) - 1) * width / 100
	last := (p.high - 1) * width / 100
	if got := last - first + 1; got < least {
		missing := least - got
		down := min(missing, first)
		first -= down
		last += missing - down
	}
	mask := uint64(0)
	for i, rest := uint64(0), base; i <= last; i++ {
		if i >= first {
			mask |= rest & -rest
		}
		rest &= rest - 1
	}
	return mask, cache.legal(mask)
}

// runs are the runs of ones of a mask, from its lowest.
func runs(mask uint64) []uint64 {
	var found []uint64
	for mask != 0 {
		run := firstRun(mask)
		found = append(found, run)
		mask &^= run
	}
	return found
}

// largestPart is the largest mask within mask that the CPU takes; 0 if there is none.
func (c *cell) largestPart(mask uint64) uint64 {
	if mask != 0 && c.cache.legal(mask) == nil {
		return mask
	}
	largest := uint64(0)
	for _, run := range runs(mask) {
		if c.cache.legal(run) == nil && bits.OnesCount64(run) > bits.OnesCount64(largest) {
			largest = run
		}
	}
	return largest
}

// leastParts are the smallest masks within mask that the CPU takes and that are smaller than it: at its lower end, and at its upper.
func (c *cell) leastParts(mask uint64) []uint64 {
	var parts []uint64
	least := c.cache.leastBits()
	for _, run := range runs(mask) {
		low := uint64(bits.TrailingZeros64(run))
		high := uint64(bits.Len64(run))
		if high-low >= least && run != mask || high-low > least {
			parts = append(parts, (1<<least-1)<<low, (1<<least-1)<<(high-least))
		}
	}
	return parts
}
