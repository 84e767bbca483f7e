// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"cmp"
	"slices"
	"time"
)

// count is how many requests were finished at a time after the begin of a load.
type count struct {
	at   time.Duration
	done int64
}

// Speed is how many requests a second a load has made. Spread is by how much the fastest of the parts that count is faster than the slowest,
// relative to the speed.
type Speed struct{ Rate, Spread float64 }

// speedOf computes the speed. It leaves out the first tenth of the counts, in which buffers of the disk fill up. Of the times between the
// others, it takes those with the middle half of the speeds, so that neither a pause of the machine nor what follows it counts.
func speedOf(counts []count) Speed {
	counts = counts[len(counts)/10:]
	if len(counts) < 2 {
		return Speed{}
	}
	parts := make([]count, 0, len(counts)-1)
	for i, one := range counts[1:] {
		parts = append(parts, count{one.at - counts[i].at, one.done - counts[i].done})
	}
	slices.SortFunc(parts, func(a, b count) int { return cmp.Compare(a.rate(), b.rate()) })

	parts = parts[len(parts)/4 : len(parts)-len(parts)/4]
	var middle count
	for _, part := range parts {
		middle.at, middle.done = middle.at+part.at, middle.done+part.done
	}
	rate := middle.rate()
	if rate == 0 {
		return Speed{}
	}
	return Speed{rate, (parts[len(parts)-1].rate() - parts[0].rate()) / rate}
}

// rate returns the requests a second, for a count of the time since the count before.
func (c count) rate() float64 {
	if c.at <= 0 {
		return 0
	}
	return float64(c.done) / c.at.Seconds()
}

// percentile returns the latency that the given part of the latencies does not exceed. It is 0 without latencies.
func percentile(latencies []time.Duration, percent int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
