// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the bounds of goresctrl's weights. The file blkio.weight of cgroup v1 has the same bounds.
const (
	minWeight = 10
	maxWeight = 1000
)

// maxRate returns the largest usable limit of a kind. The kernel reads some larger limits as "no limit", and in cgroup
// v1 it truncates them to 32 bits (block/blk-throttle.c). The result is below the largest int64, to which parseQuantity
// caps larger quantities.
func maxRate(kind int) uint64 {
	if kind == readIOPS || kind == writeIOPS {
		return math.MaxUint32 - 1
	}
	return math.MaxInt64 - 1
}

// parseQuantity reads a Kubernetes quantity, like "10M", "64Ki" or "500". It rounds up to a whole number, as goresctrl does.
func parseQuantity(f *classes.Field, text string, least, most uint64) uint64 {
	zero := ""
	if least == 0 {
		zero = ", and 0 is unlimited"
	}

	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		f.Report("%q is not a quantity; write one like 500, 10M or 64Ki", text)
	case quantity.Sign() < 0 || quantity.CmpInt64(int64(least)) < 0:
		f.Report("%q is too small; the least is %d%s", text, least, zero)
	case quantity.CmpInt64(int64(most)) > 0:
		f.Report("%q is too large; the most is %d%s", text, most, zero)
	default:
		return uint64(quantity.Value())
	}
	return 0
}
