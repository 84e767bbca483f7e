// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// masks are those of partitions, by partition, cache ID and kind of use.
type masks map[maskKey]uint64

type maskKey struct {
	partition string
	id        int
	kind      string
}

// of is the partition's mask for a kind of use; code and data are as unified where nothing else is said.
func (m masks) of(partition string, id int, kind string, otherwise uint64) uint64 {
	for _, kind := range []string{kind, unified} {
		if mask, ok := m[maskKey{partition, id, kind}]; ok {
			return mask
		}
	}
	return otherwise
}

// request is what one partition wants of one cache.
type request struct {
	partition string
	*proportion
}

// partitions divides the caches of a level among the partitions, which never overlap.
func (r *resolver) partitions(level string, cache CacheInfo) masks {
	result := masks{}
	for _, id := range cache.Domains {
		for _, kind := range []string{unified, code, data} {
			if err := r.divide(level, cache, id, kind, result); err != nil {
				r.problems = append(r.problems, err)
				return result // the other cache IDs have the same problem
			}
		}
	}
	return result
}

func (r *resolver) divide(level string, cache CacheInfo, id int, kind string, result masks) error {
	var requests []request
	var without []string
	for _, p := range r.config.partitions {
		share := cacheShare(p.caches[level], id)
		if share[kind] == nil {
			without = append(without, p.name)
			continue
		}
		requests = append(requests, request{p.name, share[kind]})
	}
	if len(requests) == 0 {
		return nil
	}
	if len(without) > 0 {
		problem := fmt.Sprintf("has no %s share of %s %d, but partition %q does; give one to every partition, or to none",
			kind, level, id, requests[0].partition)
		return &ConfigError{Of: "partition", Name: without[0], Problem: problem}
	}
	divide := dividePercent
	if !requests[0].relative() {
		divide = divideMasks
	}
	shares, err := divide(requests, cache)
	if err != nil {
		return fmt.Errorf("%s %d, %s: %w", level, id, kind, err)
	}
	for i, request := range requests {
		result[maskKey{request.partition, id, kind}] = shares[i]
	}
	return nil
}

func mixed(first, second request) error {
	return fmt.Errorf("partition %q has %s and partition %q has %s; give all partitions per cent, or all of them masks",
		first.partition, first.text, second.partition, second.text)
}

// divideMasks takes the partitions' masks as they are.
func divideMasks(requests []request, cache CacheInfo) ([]uint64, error) {
	shares := make([]uint64, 0, len(requests))
	for i, wanted := range requests {
		if wanted.relative() {
			return nil, mixed(requests[0], wanted)
		}
		if err := cache.legal(wanted.mask); err != nil {
			return nil, &ConfigError{Of: "partition", Name: wanted.partition, Problem: fmt.Sprintf("%s: %v", wanted.text, err)}
		}
		for _, other := range requests[:i] {
			if other.mask&wanted.mask != 0 {
				return nil, fmt.Errorf("partitions %q (%s) and %q (%s) overlap; give each bits of its own",
					other.partition, other.text, wanted.partition, wanted.text)
			}
		}
		shares = append(shares, wanted.mask)
	}
	return shares, nil
}

// dividePercent gives the partitions runs of bits, in the order of their names from bit 0. The sizes are settled from the
// smallest request up, rounded down but never below the least that the CPU allows; the largest gets what is left.
func dividePercent(requests []request, cache CacheInfo) ([]uint64, error) {
	total := uint64(0)
	for _, wanted := range requests {
		if !wanted.relative() {
			return nil, mixed(requests[0], wanted)
		}
		total += wanted.high
	}
	if total > 100 {
		return nil, fmt.Errorf("the partitions (%s) have %d%% together; make it 100%% or less", describe(requests), total)
	}
	sizes, err := settle(requests, total, uint64(bits.TrailingZeros64(^cache.Mask)), cache.leastBits())
	if err != nil {
		return nil, err
	}
	shares, lowest := make([]uint64, 0, len(requests)), uint64(0)
	for _, wanted := range requests {
		size := sizes[wanted.partition]
		shares = append(shares, (1<<size-1)<<lowest)
		lowest += size
	}
	return shares, nil
}

// settle says how many of width bits each partition gets, when all of them together have total per cent.
func settle(requests []request, total, width, least uint64) (map[string]uint64, error) {
	ascending := slices.Clone(requests)
	slices.SortStableFunc(ascending, func(a, b request) int { return cmp.Compare(a.high, b.high) })
	all := total * width / 100
	left, sizes := all, make(map[string]uint64, len(requests))
	for i, wanted := range ascending {
		percentLeft := uint64(0)
		if all > 0 {
			percentLeft = left * total / all
		}
		if left < least || percentLeft == 0 {
			return nil, fmt.Errorf("%d bits are too few for the partitions (%s); give larger shares, or make fewer partitions",
				all, describe(requests))
		}
		size := max(wanted.high*left/percentLeft, least)
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
