// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"cmp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/reports"
)

// Suggest returns the offered class that removes at least half of the rise and limits the culprit least. If no class
// removes half, it returns the class that removes most. It returns nil if no offered class would lower the culprit's
// use.
func Suggest(c *reports.Culprit, offers []reports.Offer) *reports.Offer {
	half := c.Before + (c.During-c.Before)/2
	var enough, best *reports.Offer
	for _, o := range slices.SortedFunc(slices.Values(offers), func(a, b reports.Offer) int { return cmp.Compare(a.Bound, b.Bound) }) {
		if o.Series != c.Series || o.Bound <= 0 || o.Bound >= c.During {
			continue
		}
		if best == nil {
			best = &o
		}
		if o.Bound <= half {
			enough = &o
		}
	}
	return cmp.Or(enough, best)
}
