// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"math"
	"slices"
)

// span has the points from `from` to `to`-1.
type span struct{ from, to int }

func (s span) len() int { return s.to - s.from }

const (
	// fewest is the minimum number of points in an interval, and outside of it.
	fewest = 3
	// An interval stands out if at least the fraction mostInside of its values are above all values outside, except the highest ones
	// outside, which are ignored: the fraction restOutside of them, and at least fewestRest values, because a change can begin and end
	// within a point.
	mostInside  = 0.7
	restOutside = 0.1
	fewestRest  = 2
)

// highest returns the interval that ends after point `since` and has the largest difference between the means inside
// and outside, weighted by the numbers of points. `ok` is false if there are too few points.
func highest(values []float64, since int) (best span, ok bool) {
	n := len(values)
	if n < 3*fewest {
		return span{}, false
	}
	sums := make([]float64, n+1)
	for i, v := range values {
		sums[i+1] = sums[i] + v
	}
	score := math.Inf(-1)
	for from := range n {
		// An interval is at most two thirds of the points.
		for to := max(from+fewest, since+1); to <= min(n, from+2*n/3); to++ {
			inside, length := sums[to]-sums[from], float64(to-from)
			outside, rest := sums[n]-inside, float64(n)-length
			difference := (inside/length - outside/rest) * math.Sqrt(length*rest)
			if difference > score+1e-12 {
				score, best, ok = difference, span{from, to}, true
			}
		}
	}
	return best, ok
}

// means returns the mean of values inside and outside of an interval.
func means(values []float64, s span) (inside, outside float64) {
	for i, v := range values {
		if i >= s.from && i < s.to {
			inside += v
		} else {
			outside += v
		}
	}
	return inside / float64(s.len()), outside / float64(len(values)-s.len())
}

// stands reports whether the values in an interval stand out from those outside of it.
func stands(values []float64, s span) bool {
	outside := slices.Concat(values[:s.from], values[s.to:])
	slices.Sort(outside)
	bar := outside[max(0, len(outside)-1-max(fewestRest, int(float64(len(outside))*restOutside)))]
	above := 0
	for _, v := range values[s.from:s.to] {
		if v > bar {
			above++
		}
	}
	return float64(above) >= mostInside*float64(s.len())
}

// correlation returns Pearson's coefficient of two series of values. It is 0 if one of them is constant.
func correlation(a, b []float64) float64 {
	n := float64(len(a))
	var sumA, sumB float64
	for i := range a {
		sumA += a[i]
		sumB += b[i]
	}
	var ab, aa, bb float64
	for i := range a {
		da, db := a[i]-sumA/n, b[i]-sumB/n
		ab += da * db
		aa += da * da
		bb += db * db
	}
	if aa <= 0 || bb <= 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
