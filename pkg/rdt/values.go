// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	goresctrl "github.com/intel/goresctrl/pkg/rdt"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// proportion is a requested share of a cache, independent of the CPU. It is a mask, a size, or a range in per cent.
type proportion struct {
	text string
	// mask is the requested mask. It is 0 if the share is the range from low to high per cent. For a partition, bit 0
	// of mask is bit 0 of the cache. For a class, bit 0 of mask is the lowest bit of the partition's mask.
	mask      uint64
	low, high uint64
	// bytes is the requested size. It is 0 if the share is a mask or in per cent.
	bytes uint64
	// ranged reports whether the text had both ends of the range.
	ranged bool
}

func (p proportion) relative() bool { return p.mask == 0 && p.bytes == 0 }

// form describes how the share is written.
func (p proportion) form() string {
	switch {
	case p.bytes > 0:
		return "sizes"
	case p.mask > 0:
		return "masks"
	}
	return "per cent"
}

// parseProportion reads "60%", "50-60%", "4MiB", "0xff0", or bit numbers like "0-5,8".
func parseProportion(text string) (proportion, error) {
	p := proportion{text: text}
	var err error
	switch {
	case strings.HasSuffix(text, "%"):
		err = p.parsePercent(strings.TrimSuffix(text, "%"))
	case strings.HasSuffix(text, "iB"):
		p.bytes, err = parseSize(text)
	case strings.HasPrefix(text, "0x"):
		p.mask, err = strconv.ParseUint(text[2:], 16, 64)
	default:
		p.mask, err = parseBits(text)
	}

	switch {
	case err != nil:
		return p, fmt.Errorf(`%q is not a share of a cache; write per cent ("60%%", "50-60%%"), a size ("4MiB"), a mask ("0xff0") or bits ("0-5")`, text)
	case p.relative() && !strings.HasSuffix(text, "%"):
		return p, fmt.Errorf("mask %q has no bit set; a group must have some cache", text)
	}
	return p, nil
}

// parseSize reads a size in bytes, like "512KiB" or "4MiB". It is above 0.
func parseSize(text string) (uint64, error) {
	for unit, bytes := range map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseUint(number, 10, 32)
			if err == nil && n == 0 {
				err = errors.New("is 0")
			}
			return n * bytes, err
		}
	}
	return 0, errors.New("unknown unit")
}

func (p *proportion) parsePercent(text string) error {
	low, high, ranged := strings.Cut(text, "-")
	if !ranged {
		low, high = "0", text
	}

	var lowErr, highErr error
	p.low, lowErr = strconv.ParseUint(low, 10, 7)
	p.high, highErr = strconv.ParseUint(high, 10, 7)
	p.ranged = ranged
	if p.low > p.high || p.high > 100 {
		return errors.New("out of range")
	}
	return errors.Join(lowErr, highErr)
}

// within returns the bits that the proportion `p` selects from the mask `base` of the cache `id`. If `p` is nil, it returns all of `base`.
func (p *proportion) within(base uint64, cache resctrl.CacheInfo, id int) (uint64, error) {
	if p == nil {
		return base, nil
	}
	if p.bytes > 0 {
		return p.sizeOf(base, cache, id)
	}
	if p.relative() {
		return p.percentOf(base, cache)
	}

	shift := bits.TrailingZeros64(base)
	mask := p.mask << shift
	if mask>>shift != p.mask || mask&^base != 0 {
		return 0, fmt.Errorf("%s, counted from bit %d, has bits outside its partition's mask %#x", p.text, shift, base)
	}
	return mask, cache.Check(mask)
}

// bitsIn returns how many bits of a cache a size needs, rounded up.
func (p proportion) bitsIn(cache resctrl.CacheInfo, id int) (uint64, error) {
	n := cache.Bits(id, p.bytes)
	if n == 0 {
		return 0, fmt.Errorf("%s: the kernel does not report the size of this cache; write per cent instead", p.text)
	}
	return max(n, cache.LeastBits()), nil
}

// sizeOf returns the lowest bits of `base` that have the requested size.
func (p proportion) sizeOf(base uint64, cache resctrl.CacheInfo, id int) (uint64, error) {
	n, err := p.bitsIn(cache, id)
	if err != nil {
		return 0, err
	}
	if has := bits.OnesCount64(base); n > uint64(has) {
		return 0, fmt.Errorf("%s is more than its partition has (%s); write a smaller size", p.text, sizeText(base, cache, id))
	}

	mask := uint64(0)
	for rest := base; n > 0; n-- {
		mask |= rest & -rest
		rest &= rest - 1
	}
	return mask, cache.Check(mask)
}

// sizeText describes the size of a mask, e.g. "6MiB" or "5461KiB".
func sizeText(mask uint64, cache resctrl.CacheInfo, id int) string {
	kib := (uint64(bits.OnesCount64(mask))*(cache.BitBytes[id]+1) - 1) >> 10
	if kib%1024 == 0 {
		return fmt.Sprintf("%dMiB", kib/1024)
	}
	return fmt.Sprintf("%dKiB", kib)
}

func (p proportion) errEmpty() error {
	return fmt.Errorf("%s selects no part of the cache; write 1%% for the smallest possible share", p.text)
}

// percentOf returns the bits of `base` from p.low to p.high per cent, where 0% is the lowest bit of `base` and 100% the highest.
// If these bits are too few for the CPU, percentOf adds neighbouring bits, lower ones first.
func (p proportion) percentOf(base uint64, cache resctrl.CacheInfo) (uint64, error) {
	width, least := uint64(bits.OnesCount64(base)), cache.LeastBits()
	if width < least {
		return 0, fmt.Errorf("%s: the mask %#x of its partition has fewer bits than this CPU needs (%d)", p.text, base, least)
	}
	if p.high == 0 {
		return 0, p.errEmpty()
	}

	first := (max(p.low, 1) - 1) * width / 100
	last := (p.high - 1) * width / 100
	if got := last - first + 1; got < least {
		down := min(least-got, first)
		first -= down
		last += least - got - down
	}

	mask := uint64(0)
	for i, rest := uint64(0), base; i <= last; i++ {
		if i >= first {
			mask |= rest & -rest
		}
		rest &= rest - 1
	}
	return mask, cache.Check(mask)
}

func parseBits(text string) (uint64, error) {
	spans, err := parseSpans(text, 63)
	mask := uint64(0)
	for _, s := range spans {
		mask |= (2<<(s.last-s.first) - 1) << s.first
	}
	return mask, err
}

// maxCacheID bounds the cache IDs in a configuration. On Arm, the kernel derives cache IDs from the 32 bits of MPIDR.
const maxCacheID = math.MaxUint32

// span is a range of numbers that includes both ends.
type span struct{ first, last int }

type spans []span

func (s spans) contains(n int) bool {
	return slices.ContainsFunc(s, func(s span) bool { return s.first <= n && n <= s.last })
}

func (s spans) common(other spans) (n int, ok bool) {
	for _, a := range s {
		for _, b := range other {
			if n := max(a.first, b.first); n <= min(a.last, b.last) {
				return n, true
			}
		}
	}
	return 0, false
}

// parseIDs reads cache IDs, like "0-5,8". For "all" it returns nil.
func parseIDs(text string) (spans, error) {
	if text == goresctrl.CacheIdAll {
		return nil, nil
	}
	ids, err := parseSpans(text, maxCacheID)
	for i := range ids {
		if n, twice := ids[:i].common(ids[i : i+1]); twice {
			return nil, fmt.Errorf("%d appears twice", n)
		}
	}
	return ids, err
}

func parseSpans(list string, limit int) (spans, error) {
	var found spans
	for part := range strings.SplitSeq(list, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, err := parseNumber(first, limit)
		if err != nil {
			return nil, err
		}

		to := from
		if ranged {
			to, err = parseNumber(last, limit)
			if err != nil {
				return nil, err
			}
			if to <= from {
				return nil, fmt.Errorf("%q is not a range", part)
			}
		}
		found = append(found, span{from, to})
	}
	return found, nil
}

func parseNumber(text string, limit int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	if err == nil && int(n) > limit {
		err = fmt.Errorf("%d is above %d", n, limit)
	}
	return int(n), err
}

// bandwidth is a requested share of memory bandwidth, with a field for each unit. The field of a unit is nil if the
// request does not use this unit.
type bandwidth struct {
	percent, mbps *uint64
}

// add parses an entry like "50%" or "1000MBps".
func (b *bandwidth) add(entry string) error {
	if number, ok := strings.CutSuffix(entry, string(resctrl.MBps)); ok {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			return fmt.Errorf(`%q is not a bandwidth in MBps; write a whole number like "1000MBps"`, entry)
		}
		if b.mbps == nil {
			b.mbps = &n
		}
		return nil
	}

	number, ok := strings.CutSuffix(entry, string(resctrl.Percent))
	n, err := strconv.ParseUint(number, 10, 7)
	if !ok || err != nil || n > 100 {
		return fmt.Errorf(`%q is not a share of memory bandwidth; write "0%%" to "100%%", or MBps as in "1000MBps"`, entry)
	}
	if b.percent == nil {
		b.percent = &n
	}
	return nil
}
