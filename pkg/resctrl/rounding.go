// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl

import (
	"fmt"
	"maps"
)

// Rounded rounds memory bandwidth up to a multiple of the granularity, as the kernel does (bw_validate). With mba_MBps,
// only some kernels round. In this case Rounded changes nothing, and Differences accepts rounded and exact values.
func (i Info) Rounded(values Schemata) Schemata {
	rounded := maps.Clone(values)
	for domain, value := range values {
		if domain.Schema == MB && i.Bandwidth != nil && i.Bandwidth.Unit != MBps {
			gran := i.Bandwidth.Granularity
			rounded[domain] = (value + gran - 1) / gran * gran
		}
	}
	return rounded
}

// Differences describes where the values that were read back from a group differ from the written values by more than
// rounding. Values of other domains do not matter. The empty Info does not expect rounding.
func (i Info) Differences(wanted, got Schemata) []string {
	var found []string
	for _, domain := range wanted.Domains() {
		want := wanted[domain]
		have, ok := got[domain]

		roundedUp := domain.Schema == MB && i.Bandwidth != nil && have > want && have < want+i.Bandwidth.Granularity
		switch {
		case !ok:
			found = append(found, fmt.Sprintf("%s is gone", domain))
		case have != want && !roundedUp:
			found = append(found, fmt.Sprintf("%s is %s instead of %s", domain, got.Value(domain), wanted.Value(domain)))
		}
	}
	return found
}
