// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// point has the values of one moment. `reached` and `waited` are 0 if the kernel does not count them.
type point struct {
	time                   time.Time
	value, reached, waited float64
}

// track has the measured values for one promise to one holder, over a window.
type track struct {
	promise classes.Promise
	// points has the last point before the window, and the points of the window.
	points   []point
	complete bool
	// `within` is true if the use was within the bound once. `exceeded` is true if the use over the window is above the
	// threshold.
	within, exceeded bool
}

// add adds the values of a moment. The window begins again after a counter decreased, and after a whole window without
// a value.
func (t *track) add(now time.Time, window time.Duration, reading classes.Reading) {
	value, measured := reading[t.promise.Use]
	measured = measured || t.promise.FromZero && reading != nil
	measured = measured && t.promise.Bound > 0
	if last := len(t.points) - 1; last >= 0 {
		before := t.points[last]
		since := now.Sub(before.time)
		if since <= 0 {
			return
		}
		if since > window || measured && t.promise.Use.Cumulative() && value < before.value {
			*t = track{promise: t.promise}
		}
	}
	if !measured {
		return
	}

	t.points = append(t.points, point{now, value, reading[t.promise.Reached], reading[t.promise.Waited]})
	old := 0
	for old+1 < len(t.points) && now.Sub(t.points[old+1].time) >= window {
		old++
	}
	t.points = append(t.points[:0], t.points[old:]...)

	t.within = t.within || !t.promise.Remains || value <= t.promise.Bound
	if t.complete = t.span() >= window; t.complete {
		t.exceeded = t.within && (t.over(t.promise.Tolerance) || t.exceeded && t.over(t.promise.Tolerance/2))
	}
}

func (t *track) measured() bool { return len(t.points) > 0 }

func (t *track) span() time.Duration {
	if len(t.points) == 0 {
		return 0
	}
	return t.points[len(t.points)-1].time.Sub(t.points[0].time)
}

// use returns the use over the window. It is the mean growth per second of a cumulative value, and the lowest value of
// other series.
func (t *track) use() float64 {
	if len(t.points) == 0 {
		return 0
	}
	if t.promise.Use.Cumulative() {
		return t.growth(func(p point) float64 { return p.value })
	}
	lowest := t.points[0].value
	for _, p := range t.points {
		lowest = min(lowest, p.value)
	}
	return lowest
}

// growth returns the mean growth per second of a value over the window.
func (t *track) growth(of func(point) float64) float64 {
	span := t.span().Seconds()
	if span <= 0 {
		return 0
	}
	return max(0, of(t.points[len(t.points)-1])-of(t.points[0])) / span
}

// waited returns the part of the window in which the holder waited.
func (t *track) waited() float64 { return min(1, t.growth(func(p point) float64 { return p.waited })) }

// ratio returns the use as a part of the bound.
func (t *track) ratio() float64 {
	if t.promise.Bound <= 0 {
		return 0
	}
	return t.use() / t.promise.Bound
}

// over reports whether the use over the window is above the bound plus `tolerance` and one burst.
func (t *track) over(tolerance float64) bool {
	most := t.promise.Bound * (1 + tolerance)
	if t.promise.Use.Cumulative() {
		return t.use()*t.span().Seconds() > most*t.span().Seconds()+t.promise.Burst
	}
	return t.use() > most+t.promise.Burst
}

// reaches reports whether the bound was reached between the last two points.
func (t *track) reaches() bool {
	last := len(t.points) - 1
	if last < 1 || !t.within {
		return false
	}
	before, now := t.points[last-1], t.points[last]
	switch {
	case t.promise.Reached.Measure != "":
		return now.reached > before.reached
	case t.promise.Use.Cumulative():
		return now.value-before.value >= reachedShare*t.promise.Bound*now.time.Sub(before.time).Seconds()
	}
	return now.value >= reachedShare*t.promise.Bound
}
