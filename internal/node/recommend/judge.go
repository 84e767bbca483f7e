// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recommend finds out which class fits what a container uses. The use is a series of values, one for each point
// of package history. A limit is what classes.Promise calls a promise: the bound of a class on one series.
package recommend

import (
	"cmp"
	"math"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the thresholds of Judge.
const (
	// A class fits if the use is close to one of its limits in at most the fraction `rarely` of the points.
	rarely = 0.05
	// atLimit is the fraction of a limit above which the limit counts as reached.
	atLimit = 0.9
	// A limit also counts as reached if the use is above the fraction `halfLimit` of it, and the container waited for
	// at least the fraction `longWait` of the time. The limit then slowed the container down in a part of the point.
	halfLimit, longWait = 0.5, 0.2
	// stepUp is the minimum ratio of a proposed limit to the limit of the present class, if the container reached the
	// present limit.
	stepUp = 2
)

// room says how far below a limit the use has to stay.
type room struct {
	// `close` is the fraction of a limit above which the use is close to the limit. `lower` is this fraction for limits
	// below the present one. It is smaller, so that a container that has moved to a larger class does not get the
	// advice to move back.
	close, lower float64
	// `headroom` is the ratio of a proposed limit to the need.
	headroom float64
}

// roomOf returns the room of a series. A rate gets more room, because it is the mean over a point, and is higher in a
// part of the point.
func roomOf(series classes.Series) room {
	if series.Cumulative() {
		return room{close: 0.7, lower: 0.5, headroom: 2}
	}
	return room{close: 0.9, lower: 0.8, headroom: 1.25}
}

// Demand is what a container used, and the classes that it can have. All slices of values have one element for each
// point.
type Demand struct {
	Uses []Use
	// Present is the class that the container had.
	Present string
	Classes []Class
}

// Use has the values of a container for one series. If the series is cumulative, they are per second.
type Use struct {
	Series classes.Series
	Values []float64
	// Held is true for the points in which the limit of the present class was reached. Without this limit, the
	// container could have used more.
	Held []bool
}

// Class is a class of the node.
type Class struct {
	Name   string
	Limits []Limit
}

// Limit is the bound of a class on one series, and the setting that sets it.
type Limit struct {
	// Name is the setting as users know it, e.g. "ThrottleWriteBps".
	Name   string
	Series classes.Series
	Bound  float64
	// Others is what the other containers of the class used, if all containers of the class share the limit. It is nil
	// otherwise.
	Others []float64
}

// Judge returns the class that fits best. A class fits if the use is rarely close to its limits. The best one leaves
// the smallest part of its limits unused.
func Judge(d *Demand) reports.Advice {
	j := judge{d, map[classes.Series]bool{}, map[string]string{}}
	for _, c := range d.Classes {
		for _, l := range c.Limits {
			j.names[l.Series.Measure] = l.Name
			j.limited[l.Series] = true
		}
	}
	used := j.used()
	if len(used) == 0 {
		return reports.Advice{Outcome: reports.Unused}
	}

	held := slices.ContainsFunc(used, func(u Use) bool { return share(u.Held) > rarely })
	best := reports.Advice{Outcome: reports.Add, Held: held}
	size := 0.0
	for _, c := range d.Classes {
		figures, fits := j.figures(&c)
		if !fits || !slices.ContainsFunc(used, func(u Use) bool { return limits(figures, u.Series) != nil }) {
			continue
		}
		left, sum := j.left(used, figures), sizeOf(figures)
		order := cmp.Or(cmp.Compare(left, best.Left), -cmp.Compare(len(figures), len(best.Figures)), cmp.Compare(sum, size), cmp.Compare(c.Name, best.Class))
		if best.Outcome == reports.Add || order < 0 {
			best = reports.Advice{Outcome: reports.Fits, Class: c.Name, Figures: figures, Left: left, Held: held}
			size = sum
		}
	}
	if best.Outcome == reports.Add {
		best.Figures = j.proposed(used)
		best.Left = j.left(used, best.Figures)
	}
	return best
}

// judge has a Demand, the series that its classes limit, and the names of the limits by measure.
type judge struct {
	*Demand
	limited map[classes.Series]bool
	names   map[string]string
}

// used returns the uses above 0 whose measure some class limits, even if it limits the measure only on another disk.
func (j *judge) used() (used []Use) {
	for _, u := range j.Uses {
		_, known := j.names[u.Series.Measure]
		if known && slices.ContainsFunc(u.Values, func(v float64) bool { return v > 0 }) {
			used = append(used, u)
		}
	}
	return used
}

// figures returns the figures of the limits of a class. `fits` is true if the use is rarely close to any of these
// limits.
func (j *judge) figures(c *Class) (figures []reports.Figure, fits bool) {
	fits = true
	for _, l := range c.Limits {
		f := j.figure(l, j.bound(l.Series))
		figures = append(figures, f)
		fits = fits && f.Close <= rarely
	}
	return figures, fits
}

// bound returns the bound of the present class on a series, or 0.
func (j *judge) bound(series classes.Series) float64 {
	for _, c := range j.Classes {
		for _, l := range c.Limits {
			if c.Name == j.Present && l.Series == series {
				return l.Bound
			}
		}
	}
	return 0
}

// figure compares the use with a limit. `present` is the bound of the present class on the same series, or 0. If the
// limit is not above `present`, the use counts as close to the limit in the points in which `present` was reached.
func (j *judge) figure(l Limit, present float64) reports.Figure {
	f := reports.Figure{Name: l.Name, Series: l.Series, Bound: l.Bound}
	use := Use{}
	if at := slices.IndexFunc(j.Uses, func(u Use) bool { return u.Series == l.Series }); at >= 0 {
		use = j.Uses[at]
	}
	values := slices.Clone(use.Values)
	if values == nil {
		values = make([]float64, len(l.Others))
	}
	for i := range min(len(values), len(l.Others)) {
		values[i] += l.Others[i]
	}
	part := roomOf(l.Series).close
	if l.Bound < present {
		part = roomOf(l.Series).lower
	}
	isClose := make([]bool, len(values))
	for i, v := range values {
		isClose[i] = l.Bound != present && v > part*l.Bound || i < len(use.Held) && use.Held[i] && l.Bound <= present
	}
	f.Need, f.Most = need(values)
	f.Close, f.Held = share(isClose), share(use.Held)
	return f
}

// left returns which fraction of its limits the container leaves unused, as the mean over the limits. A use that only
// other classes limit counts as 1.
func (j *judge) left(used []Use, figures []reports.Figure) float64 {
	sum, n := 0.0, 0.0
	for _, u := range used {
		switch f := limits(figures, u.Series); {
		case f != nil:
			sum, n = sum+max(0, 1-f.Need/f.Bound), n+1
		case j.limited[u.Series]:
			sum, n = sum+1, n+1
		}
	}
	return sum / max(n, 1)
}

// limits returns the figure of a series, or nil.
func limits(figures []reports.Figure, series classes.Series) *reports.Figure {
	for i := range figures {
		if figures[i].Series == series {
			return &figures[i]
		}
	}
	return nil
}

// sizeOf returns a number that is smaller for lower limits.
func sizeOf(figures []reports.Figure) (size float64) {
	for _, f := range figures {
		size += math.Log(f.Bound)
	}
	return size
}

// proposed returns the limits of a class that would fit.
func (j *judge) proposed(used []Use) (figures []reports.Figure) {
	for _, u := range used {
		value, most := need(u.Values)
		if value == 0 {
			value = most
		}
		bound := roomOf(u.Series).headroom * value
		if held := share(u.Held); held > rarely {
			bound = max(bound, stepUp*j.bound(u.Series))
		}
		l := Limit{Name: j.names[u.Series.Measure], Series: u.Series, Bound: roundUp(bound)}
		figures = append(figures, j.figure(l, j.bound(u.Series)))
	}
	return figures
}

// need returns the value that is exceeded rarely, and the highest value.
func need(values []float64) (need, most float64) {
	if len(values) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int((1-rarely)*float64(len(sorted))))], sorted[len(sorted)-1]
}

// roundUp returns the next value with two significant digits.
func roundUp(value float64) float64 {
	if value <= 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(value))-1)
	return math.Ceil(value/unit-1e-9) * unit
}

// share returns the fraction of the points that are true.
func share(points []bool) float64 {
	n := 0
	for _, p := range points {
		if p {
			n++
		}
	}
	return float64(n) / float64(max(len(points), 1))
}

// HeldAt reports for each point whether a limit was reached. `reached` has how often the kernel counted that. `waited`
// has the part of the time in which the container waited. They are nil if the kernel does not count this.
func HeldAt(values []float64, bound float64, reached, waited []float64) []bool {
	held := make([]bool, len(values))
	for i, v := range values {
		switch {
		case bound <= 0:
		case reached != nil:
			held[i] = reached[i] > 0
		default:
			held[i] = v > atLimit*bound || waited != nil && v > halfLimit*bound && waited[i] >= longWait
		}
	}
	return held
}
