// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"encoding/binary"
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
	intervals := len(r.samples) - 1
	if intervals < 1 {
		return Window{}
	}
	merge := (intervals + mostPoints - 1) / mostPoints // the number of intervals between samples in a point
	points := (intervals + merge - 1) / merge
	w := Window{Times: []time.Time{r.samples[0].time}, Series: slices.Clone(r.series), Incomplete: r.incomplete}
	for i := range points {
		w.Times = append(w.Times, r.samples[min((i+1)*merge, intervals)].time)
	}

	oldest := r.added - len(r.samples)
	pointOf := func(sample int) int { return max(0, (sample-oldest-1)/merge) }
	byNumber, gaps := map[uint64]int{}, map[uint64][]gap{}
	all := make([]*known, 0, len(r.containers))
	for _, c := range r.containers {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *known) int { return cmp.Compare(a.number, b.number) })
	for _, c := range all {
		if c.last <= oldest {
			continue
		}
		byNumber[c.number], gaps[c.number] = len(w.Tracks), c.gaps
		w.Tracks = append(w.Tracks, Track{
			Container: c.Container, Values: map[classes.Series][]float32{}, From: pointOf(c.first + 1), To: pointOf(c.last) + 1,
			Incomplete: c.incomplete >= oldest,
		})
	}

	// spread adds a value to the points of the samples from `from`+1 to `to`. It spreads growth evenly over the time.
	spread := func(t *Track, series classes.Series, value float64, from, to int) {
		begin, whole := r.samples[max(from, 0)].time, 1.0
		if from < 0 { // some of the samples that lacked the container were removed
			whole = float64(to) / float64(to-from)
		}
		for i := max(from, 0) + 1; i <= to; i++ {
			point := (i - 1) / merge
			of := r.samples[i].time.Sub(r.samples[i-1].time).Seconds()
			part := of / w.Times[point+1].Sub(w.Times[point]).Seconds()
			if series.Cumulative() {
				part *= whole / r.samples[to].time.Sub(begin).Seconds()
			}
			t.add(series, point, points, value*part)
		}
	}
	for i := 1; i <= intervals; i++ { // sample 0 is the beginning of the first point
		r.decode(r.samples[i].data, func(number uint64, series int, value float64) {
			at, has := byNumber[number]
			if !has {
				return
			}
			from := i - 1
			if g, found := slices.BinarySearchFunc(gaps[number], oldest+i, func(g gap, to int) int { return cmp.Compare(g.to, to) }); found {
				from -= gaps[number][g].samples
			}
			spread(&w.Tracks[at], r.series[series], value, from, i)
		})
	}
	return w
}

func (t *Track) add(series classes.Series, point, points int, value float64) {
	values := t.Values[series]
	if values == nil {
		values = make([]float32, points)
		t.Values[series] = values
	}
	values[point] += float32(value / unitsOf(series))
}

// decode calls a function for each value of a sample.
func (r *Ring) decode(data []byte, each func(container uint64, series int, value float64)) {
	number := uint64(0)
	next := func() uint64 {
		value, n := binary.Uvarint(data)
		data = data[max(n, 0):]
		return value
	}
	for len(data) > 0 {
		number += next()
		for range next() {
			series := next()
			each(number, int(series), float64(next()))
		}
	}
}
