// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// goresctrl's weights: those of cgroup v1's blkio.weight.
	minWeight     = 10
	maxWeight     = 1000
	defaultWeight = 100
)

// maxRate is the largest limit of a kind that the kernel does not take for "no limit" or, in cgroup v1, cut off: operations
// are 32 bits there (block/blk-throttle.c). Quantities end one below the largest int64, so that a larger one is noticed.
func maxRate(kind int) uint64 {
	if kind == readIOPS || kind == writeIOPS {
		return math.MaxUint32 - 1
	}
	return math.MaxInt64 - 1
}

// parseQuantity reads a Kubernetes quantity, e.g. "10M", "64Ki" or "500", and rounds up to a whole number as goresctrl does.
func parseQuantity(text string, least, most uint64) (uint64, error) {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a quantity; write one like 500, 10M or 64Ki", text)
	}
	if quantity.Sign() < 0 || quantity.CmpInt64(int64(least)) < 0 {
		return 0, fmt.Errorf("%q is too small; the least is %d%s", text, least, zeroMeans(least))
	}
	if quantity.CmpInt64(int64(most)) > 0 {
		return 0, fmt.Errorf("%q is too large; the most is %d%s", text, most, zeroMeans(least))
	}
	return uint64(quantity.Value()), nil
}

func zeroMeans(least uint64) string {
	if least == 0 {
		return ", and 0 is unlimited"
	}
	return ""
}
