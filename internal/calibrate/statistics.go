// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"slices"
	"time"
)

// count is how many requests were finished at a time after the begin of a load.
type count struct {
	at   time.Duration
	done int64
}

// Speed is how many requests a second a load has made. Spread is the standard deviation of parts of the load, relative to the speed.
type Speed struct{ Rate, Spread float64 }

// speedOf computes the speed. It leaves out the first tenth of the counts, in which buffers of the disk fill up.
func speedOf(counts []count) Speed {
	counts = counts[len(counts)/10:]
	if len(counts) < 2 {
		return Speed{}
	}

	first, last := counts[0], counts[len(counts)-1]
	rate := perSecond(first, last)
	if rate == 0 {
		return Speed{}
	}
	var squares float64
	for i, one := range counts[1:] {
		squares += math.Pow(perSecond(counts[i], one)/rate-1, 2)
	}
	return Speed{rate, math.Sqrt(squares / float64(len(counts)-1))}
}

func perSecond(from, to count) float64 {
	if to.at <= from.at {
		return 0
	}
	return float64(to.done-from.done) / (to.at - from.at).Seconds()
}

// percentile returns the latency that the given part of the latencies does not exceed. It is 0 without latencies.
func percentile(latencies []time.Duration, percent int) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}
