// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"cmp"
	"slices"
	"time"
)

// count is the number of requests that were finished within a time after the beginning of a load.
type count struct {
	at   time.Duration
	done int64
}

// Speed is the speed of a load. Rate is in requests per second. Spread is the difference between the rates of the
// fastest and the slowest part that speedOf includes, divided by Rate.
type Speed struct{ Rate, Spread float64 }

// speedOf computes the speed from the parts of a load between two counts. It leaves out the first tenth, in which
// buffers of the disk fill up. Then it leaves out the slowest and the fastest quarter, so that a pause of the machine
// and the time after it do not count.
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

// rate returns the requests per second.
func (c count) rate() float64 {
	if c.at <= 0 {
		return 0
	}
	return float64(c.done) / c.at.Seconds()
}

// percentile returns the latency that `percent` of the latencies do not exceed. It is 0 without latencies.
func percentile(latencies []time.Duration, percent int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
