// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package ioapply

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Quantity returns a number as ParseQuantity reads it, like "12M", rounded up to a whole number.
func Quantity(value float64) string {
	return resource.NewQuantity(int64(math.Ceil(value)), resource.DecimalSI).String()
}

// ParseQuantity reads a Kubernetes quantity, like "10M", "64Ki" or "500". It rounds up to a whole number, as goresctrl does.
func ParseQuantity(f *classes.Field, text string, least, most uint64) uint64 {
	zero := ""
	if least == 0 {
		zero = ", and 0 is unlimited"
	}

	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		f.Report("%q is not a quantity; write one like 500, 10M or 64Ki", text)
	case quantity.Sign() < 0 || quantity.CmpInt64(int64(least)) < 0:
		f.Report("%q is too small; the minimum is %d%s", text, least, zero)
	case quantity.CmpInt64(int64(most)) > 0:
		f.Report("%q is too large; the maximum is %d%s", text, most, zero)
	default:
		return uint64(quantity.Value())
	}
	return 0
}
