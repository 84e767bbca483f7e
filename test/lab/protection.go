// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Second is the result of one second of a steady load.
type Second struct {
	// Served is the number of finished requests.
	Served int `json:"served"`

	// Latency is the 95th percentile of their durations, in milliseconds.
	Latency float64 `json:"latency"`
}

// NewSecond returns a second in which requests with these durations were finished. Without requests, the latency is one
// second.
func NewSecond(durations []time.Duration) Second {
	if len(durations) == 0 {
		return Second{Latency: 1000}
	}
	milliseconds := make([]float64, 0, len(durations))
	for _, d := range durations {
		milliseconds = append(milliseconds, d.Seconds()*1000)
	}
	return Second{Served: len(durations), Latency: percentile(milliseconds, 95)}
}

// Protection is a scene that compares a workload beside neighbours with the same workload alone. Isolation and latency
// impact are those of resctl-bench's benchmark "protection", second by second:
// https://github.com/facebookexperimental/resctl-demo/blob/main/resctl-bench/doc/protection.md. The isolation is the
// share of the offered requests that were finished. The latency impact is the relative growth of their latency. As in
// resctl-bench's code, an isolation is at most 100%, an impact is at least 0, and the latency of a second is the 95th
// percentile.
type Protection struct {
	Scene

	offered float64 // requests in a second
	latency float64 // of the workload alone, the mean of all seconds
}

// NewProtection returns a scene whose first row is the workload alone, with `offered` requests per second.
func NewProtection(name, title string, offered int, alone []Second) *Protection {
	var latencies []float64
	for _, s := range alone {
		latencies = append(latencies, s.Latency)
	}
	p := &Protection{Scene: Scene{Name: name, Title: title}, offered: float64(offered), latency: mean(latencies)}
	p.Measured(Alone, alone, 0)
	return p
}

// The situations of a Protection, and two of its columns.
const (
	Alone         = "alone"
	NoClass       = "no class"
	Throttled     = "neighbours throttled (io.max)"
	ByWeights     = "weights with iocost"
	ByLatency     = "io.latency"
	IsolationMean = "isolation (%)"
	ImpactMedian  = "latency impact p50 (%)"
)

// Latency returns the latency of the workload alone, in milliseconds.
func (p *Protection) Latency() float64 { return p.latency }

// Measured adds a row. `neighbours` is the rate of the neighbours in MB/s.
func (p *Protection) Measured(situation string, seconds []Second, neighbours float64) {
	var isolation, impact []float64
	for _, s := range seconds {
		isolation = append(isolation, 100*min(1, float64(s.Served)/p.offered))
		impact = append(impact, 100*max(0, s.Latency/p.latency-1))
	}

	p.Columns = nil
	var values []float64
	add := func(column string, value float64) {
		p.Columns, values = append(p.Columns, column), append(values, value)
	}
	add(IsolationMean, mean(isolation))
	add("isolation stdev", deviation(isolation))
	add(ImpactMedian, percentile(impact, 50))
	add("neighbours (MB/s)", neighbours)
	// A percentile is shown only if at least one second is beyond it.
	for _, rank := range []float64{95, 99} {
		if float64(len(seconds))*(100-rank) >= 100 {
			add(fmt.Sprintf("isolation p%02.f (%%)", 100-rank), percentile(isolation, 100-rank))
			add(fmt.Sprintf("impact p%.f (%%)", rank), percentile(impact, rank))
		}
	}
	add("impact mean (%)", mean(impact))
	add("impact stdev", deviation(impact))
	add("seconds", float64(len(seconds)))
	p.Add(situation, values...)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// deviation returns the standard deviation.
func deviation(values []float64) float64 {
	middle, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - middle) * (v - middle)
	}
	return math.Sqrt(sum / float64(len(values)))
}

// percentile returns the smallest value that is at least as high as `p` per cent of the values.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}
