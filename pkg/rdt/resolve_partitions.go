// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

type request struct {
	partition string
	*proportion
	// withDevices is true if the partition gets the bits that devices also use.
	withDevices bool
}

// partitionMasks returns the masks that the partitions get in one cache. The outer key of the result is unified, code or
// data, and the inner key is the name of a partition.
func (r *resolver) partitionMasks(level string, cache resctrl.CacheInfo, id int) (map[string]map[string]uint64, error) {
	whole := map[string]uint64{}
	for _, p := range r.config.partitions {
		whole[p.name] = cache.Mask
	}

	masks := map[string]map[string]uint64{unified: whole}
	for _, kind := range []string{unified, code, data} {
		divided, err := r.divide(level, cache, id, kind)
		if err != nil {
			return nil, err
		}
		if divided == nil { // no partition has a share of this kind
			divided = masks[unified]
		}
		masks[kind] = divided
	}
	return masks, nil
}

// divide gives each partition a part of one cache, for one kind of use: unified, code or data. If no partition requests a share
// of this kind, divide returns nil.
func (r *resolver) divide(level string, cache resctrl.CacheInfo, id int, kind string) (map[string]uint64, error) {
	requests, without := r.config.requests(level, id, kind)
	if len(requests) == 0 {
		return nil, nil
	}

	if without != "" {
		problem := fmt.Sprintf("has no %s share of %s %d, but partition %q has one; give a share to every partition, or to none",
			kind, level, id, requests[0].partition)
		return nil, &ConfigError{Of: "partition", Name: without, Problem: problem}
	}

	divide := map[string]func([]request, resctrl.CacheInfo, int) (map[string]uint64, error){
		"per cent": dividePercent, "masks": divideMasks, "sizes": divideSizes,
	}[requests[0].form()]
	masks, err := map[string]uint64(nil), divisible(requests)
	if err == nil {
		masks, err = divide(byDevices(requests, cache), cache, id)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %d, %s: %w", level, id, kind, err)
	}
	toDevices(masks, requests, cache)
	return masks, nil
}

// withSharedBits reports whether devices or other hardware also use some bits of the cache, and whether these are the
// lowest bits.
func withSharedBits(cache resctrl.CacheInfo) (shared, lowest bool) {
	return cache.Shareable != 0 && cache.Shareable != cache.Mask, cache.Shareable&1 != 0
}

// byDevices returns the requests in the order in which they get bits. In this order, the requests with the field
// sharedWithDevices get the bits that devices also use.
func byDevices(requests []request, cache resctrl.CacheInfo) []request {
	shared, lowest := withSharedBits(cache)
	ordered := slices.Clone(requests)
	slices.SortStableFunc(ordered, func(a, b request) int {
		if !shared || a.withDevices == b.withDevices {
			return 0
		}
		if a.withDevices == lowest {
			return -1
		}
		return 1
	})
	return ordered
}

// toDevices moves the masks of the partitions with the field sharedWithDevices to the highest bits, if devices use these, and the
// partitions do not need the whole cache.
func toDevices(masks map[string]uint64, requests []request, cache resctrl.CacheInfo) {
	shared, lowest := withSharedBits(cache)
	if !shared || lowest || requests[0].form() == "masks" {
		return
	}
	used := uint64(0)
	for _, mask := range masks {
		used |= mask
	}
	for _, r := range requests {
		if r.withDevices {
			masks[r.partition] <<= bits.Len64(cache.Mask) - bits.Len64(used)
		}
	}
}

// requests returns the shares that partitions request of one cache, for one kind of use. `without` is the name of the first partition that
// requests none.
func (c *Config) requests(level string, id int, kind string) (requests []request, without string) {
	for _, p := range c.partitions {
		if share := cacheShare(p.caches[level], id); share[kind] != nil {
			requests = append(requests, request{p.name, share[kind], p.withDevices})
		} else if without == "" {
			without = p.name
		}
	}
	return requests, without
}

// divisible returns an error if no cache can be divided into the requested shares.
func divisible(requests []request) error {
	total := uint64(0)
	for i, wanted := range requests {
		if wanted.withDevices && wanted.form() == "masks" {
			return fmt.Errorf("partition %q has %s and sharedWithDevices; write per cent or a size, or remove sharedWithDevices", wanted.partition, wanted.text)
		}
		if first := requests[0]; wanted.form() != first.form() {
			return fmt.Errorf("partition %q has %s and partition %q has %s; give all partitions per cent, or all of them sizes or masks",
				first.partition, first.text, wanted.partition, wanted.text)
		}
		for _, other := range requests[:i] {
			if other.mask&wanted.mask != 0 {
				return fmt.Errorf("partitions %q (%s) and %q (%s) overlap; give each partition separate bits",
					other.partition, other.text, wanted.partition, wanted.text)
			}
		}
		total += wanted.high
	}
	if total > 100 {
		return fmt.Errorf("the shares of the partitions (%s) add up to %d%%; reduce them to 100%% or less", describe(requests), total)
	}
	return nil
}

// indivisible returns an error for each cache level that no CPU can divide into the shares of the partitions.
func (c *Config) indivisible(level string) error {
	for _, id := range c.sharedIDs(level) {
		for _, kind := range []string{unified, code, data} {
			requests, _ := c.requests(level, id, kind)
			switch err := divisible(requests); {
			case err != nil && id < 0:
				return fmt.Errorf("%s, %s: %w", level, kind, err)
			case err != nil:
				return fmt.Errorf("%s %d, %s: %w", level, id, kind, err)
			}
		}
	}
	return nil
}

// sharedIDs returns the cache IDs for which the shares of the partitions must be checked: of the IDs that partitions name, at least
// one for each combination of settings. If the partitions name no IDs, it returns -1, because the settings then apply to all cache
// IDs.
func (c *Config) sharedIDs(level string) (ids []int) {
	var named spans
	for _, p := range c.partitions {
		for _, s := range p.caches[level] {
			named = append(named, s.ids...)
		}
	}
	for _, s := range named {
		ids = append(ids, s.first)
		if named.contains(s.last + 1) {
			ids = append(ids, s.last+1)
		}
	}
	if len(ids) == 0 {
		return []int{-1}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func divideMasks(requests []request, cache resctrl.CacheInfo, _ int) (map[string]uint64, error) {
	masks := map[string]uint64{}
	for _, wanted := range requests {
		if err := cache.Check(wanted.mask); err != nil {
			return nil, &ConfigError{Of: "partition", Name: wanted.partition, Problem: fmt.Sprintf("%s: %v", wanted.text, err)}
		}
		masks[wanted.partition] = wanted.mask
	}
	return masks, nil
}

// dividePercent gives each partition a contiguous run of bits, in the order of the partitions' names, beginning at bit 0.
func dividePercent(requests []request, cache resctrl.CacheInfo, _ int) (map[string]uint64, error) {
	total := uint64(0)
	for _, wanted := range requests {
		total += wanted.high
	}

	sizes, err := sizesOf(requests, total, cache)
	if err != nil {
		return nil, err
	}
	masks, lowest := map[string]uint64{}, uint64(0)
	for _, wanted := range requests {
		size := sizes[wanted.partition]
		masks[wanted.partition] = (1<<size - 1) << lowest
		lowest += size
	}
	return masks, nil
}

// divideSizes gives each partition a contiguous run of bits of at least its size, in the order of the partitions'
// names, beginning at bit 0. No partition gets the remaining bits.
func divideSizes(requests []request, cache resctrl.CacheInfo, id int) (map[string]uint64, error) {
	masks, lowest := map[string]uint64{}, uint64(0)
	for _, wanted := range requests {
		n, err := wanted.bitsIn(cache, id)
		if err != nil {
			return nil, err
		}
		if all := uint64(bits.OnesCount64(cache.Mask)); lowest+n > all {
			return nil, fmt.Errorf("the partitions (%s) do not fit into the cache: it has %s in %d equal parts, and each size is rounded up to whole parts; "+
				"reduce the sizes", describe(requests), sizeText(cache.Mask, cache, id), all)
		}
		masks[wanted.partition] = (1<<n - 1) << lowest
		lowest += n
	}
	return masks, nil
}

// sizesOf returns the number of bits of each partition. `total` is the sum of the requests in per cent. Beginning with the
// smallest request, sizesOf rounds each number down, but not below the CPU's minimum. The largest request gets the rest.
func sizesOf(requests []request, total uint64, cache resctrl.CacheInfo) (map[string]uint64, error) {
	ascending := slices.Clone(requests)
	slices.SortStableFunc(ascending, func(a, b request) int { return cmp.Compare(a.high, b.high) })
	all := total * uint64(bits.OnesCount64(cache.Mask)) / 100

	left, sizes := all, make(map[string]uint64, len(requests))
	for i, wanted := range ascending {
		percentLeft := uint64(0)
		if all > 0 {
			percentLeft = left * total / all
		}
		if left < cache.LeastBits() || percentLeft == 0 {
			return nil, fmt.Errorf("%d bits of the cache mask are too few for the partitions (%s); give larger shares, or define fewer partitions",
				all, describe(requests))
		}

		size := max(wanted.high*left/percentLeft, cache.LeastBits())
		if size > left || i == len(ascending)-1 {
			size = left
		}
		sizes[wanted.partition] = size
		left -= size
	}
	return sizes, nil
}

func describe(requests []request) string {
	texts := make([]string, 0, len(requests))
	for _, wanted := range requests {
		texts = append(texts, wanted.partition+" "+wanted.text)
	}
	return strings.Join(texts, ", ")
}
