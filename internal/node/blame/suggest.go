// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"cmp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Offer is a limit that a class of the node sets on a use.
type Offer struct {
	Resource, Class string
	// Name is the setting as users know it. Bound is per second if the series is cumulative.
	Name   string
	Series classes.Series
	Bound  float64
	// Mutable is true if a running container can get the class.
	Mutable bool
	// Pod is true if the whole pod has the class.
	Pod bool
}

// Suggestion is the smallest change that would help: the class with the highest limit that removes at least half of a
// rise.
type Suggestion struct{ Offer }

// Suggest returns the change that would help against a culprit. If no class removes half of the rise, it is the class
// that removes most. It is nil if no offered class would lower the culprit's use.
func Suggest(c *Culprit, offers []Offer) *Suggestion {
	if c.Ended {
		return nil
	}
	half := c.Before + (c.During-c.Before)/2
	var enough, best *Offer
	for _, o := range slices.SortedFunc(slices.Values(offers), func(a, b Offer) int { return cmp.Compare(a.Bound, b.Bound) }) {
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
	switch {
	case enough != nil:
		return &Suggestion{*enough}
	case best != nil:
		return &Suggestion{*best}
	}
	return nil
}
