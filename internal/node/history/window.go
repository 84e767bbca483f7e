// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Window is the content of a ring. A point is the time between two successive samples, or several such times.
type Window struct {
	// Point i is from Times[i] to Times[i+1].
	Times []time.Time
	// Tracks has the containers of all samples, in the order of their first sample.
	Tracks []Track
	// Series has all series that were ever read, even if they were always 0.
	Series []classes.Series
	// Incomplete is the number of containers that the newest sample lacks, or lacks values of, because the ring has no room.
	Incomplete int
}

// Track has the values of one container in a window.
type Track struct {
	reports.Container
	// Values has a value for each point, by series. It is the growth per second if the series is cumulative, and
	// otherwise the mean. A series that was always 0 is missing.
	Values map[classes.Series][]float32
	// The container was read in the points from `From` to `To`-1.
	From, To int
	// Incomplete is true if a sample lacks values of the container, because the ring has no room.
	Incomplete bool
}

// Points returns the number of points.
func (w *Window) Points() int { return max(0, len(w.Times)-1) }

// Window returns the content of the ring. It has at most mostPoints points.
func (r *Ring) Window() Window {
	intervals := len(r.times) - 1
	if intervals < 1 {
		return Window{}
	}
	merge := (intervals + mostPoints - 1) / mostPoints // the number of intervals between samples in a point
	points := (intervals + merge - 1) / merge
	w := Window{Times: []time.Time{r.times[0]}, Series: slices.Clone(r.series), Incomplete: r.incomplete}
	for i := range points {
		w.Times = append(w.Times, r.times[min((i+1)*merge, intervals)])
	}

	pointOf := func(sample int) int { return max(0, (sample-r.oldest()-1)/merge) }
	inOrder := func(a, b *known) int { return cmp.Compare(a.number, b.number) }
	for _, c := range slices.SortedFunc(maps.Values(r.containers), inOrder) {
		if c.last > r.oldest() {
			w.Tracks = append(w.Tracks, Track{
				Container: c.Container, Values: r.values(c, &w, pointOf), From: pointOf(c.first + 1), To: pointOf(c.last) + 1,
				Incomplete: c.incomplete >= r.oldest(),
			})
		}
	}
	return w
}

// values returns the values of a container for the points of a window. Each is the mean over the samples of the point.
func (r *Ring) values(c *known, w *Window, pointOf func(sample int) int) map[classes.Series][]float32 {
	all := map[classes.Series][]float32{}
	for _, of := range c.counters {
		if of.to <= r.oldest()+1 { // the oldest sample is only the beginning of the first point
			continue
		}
		means := make([]float32, w.Points())
		for i, value := range of.values {
			sample := of.to - len(of.values) + i
			if at := sample - r.oldest(); at > 0 {
				point := pointOf(sample)
				part := r.times[at].Sub(r.times[at-1]).Seconds() / w.Times[point+1].Sub(w.Times[point]).Seconds()
				means[point] += float32(float64(value) * part)
			}
		}
		all[r.series[of.series]] = means
	}
	return all
}
