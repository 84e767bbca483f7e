// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"maps"
)

// Rounded rounds memory bandwidth as the kernel does.
func (i Info) Rounded(values Schemata) Schemata {
	return i.withBandwidth(values, BandwidthInfo.ReadBack)
}

// ToWrite returns the values that must be written so that the kernel has `values` afterwards. `values` come from Rounded or from the kernel.
func (i Info) ToWrite(values Schemata) Schemata {
	return i.withBandwidth(values, BandwidthInfo.ToWrite)
}

// withBandwidth returns a copy of the values in which each memory bandwidth is replaced by the result of `of`. It
// changes nothing if the CPU has no control of bandwidth.
func (i Info) withBandwidth(values Schemata, of func(BandwidthInfo, uint64) uint64) Schemata {
	changed := maps.Clone(values)
	for domain, value := range values {
		if domain.Schema == MB && i.Bandwidth != nil {
			changed[domain] = of(*i.Bandwidth, value)
		}
	}
	return changed
}

// Differences describes where the values that were read back from a group differ from the written values by more than
// rounding. It ignores domains that `wanted` lacks. An empty Info means that nothing is rounded.
func (i Info) Differences(wanted, got Schemata) []string {
	var found []string
	for _, domain := range wanted.Domains() {
		want := wanted[domain]
		have, ok := got[domain]

		near := domain.Schema == MB && i.Bandwidth != nil && i.Bandwidth.Near(want, have)
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s is gone", domain))
		case have != want && !near:
			found = append(found, fmt.Sprintf("%s is %s instead of %s", domain, got.Value(domain), wanted.Value(domain)))
		}
	}
	return found
}
