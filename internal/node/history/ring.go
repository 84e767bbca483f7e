// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history keeps what containers have used and how long they have waited, for some minutes, in a bounded number
// of bytes. A sample has the values of all containers at one moment. A Window shows the samples as points, which are
// the times between them, and as tracks: a Track has the values of one container, by series.
package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// Keep is how far the history reaches back.
	Keep = 15 * time.Minute
	// Budget is the maximum size of a ring in bytes. If the samples need more, the ring keeps fewer. If not even
	// leastSamples samples fit, the ring leaves out containers.
	Budget = 8 << 20
	// leastSamples is the number of samples that always fit into a ring. The containers and their counters have half of
	// the budget, and the samples have the other half.
	leastSamples = 10
	// maxSeries is the maximum number of series of a ring. Four series for each of 500 disks fit; the ring leaves out
	// others.
	maxSeries = 2048
	// mostPoints is the maximum number of points of a Window. With more samples, a point covers several of them.
	mostPoints = 120
)

// These are the estimated sizes of what a ring keeps, in bytes. `containerSize` does not include the texts of a
// container, and `counterSize` does not include its values.
const (
	containerSize = 400
	counterSize   = 64 + valueSize*spare
	sampleSize    = 64
	seriesSize    = 200
	valueSize     = 4
	// spare is the number of further values for which a counter gets memory.
	spare = 4
)

// sizeOf estimates how many bytes a container occupies.
func sizeOf(c reports.Container) int {
	return containerSize + 2*len(c.ID) + len(c.PodUID) + len(c.Namespace) + len(c.Pod) + len(c.Name)
}

// Read has the values of a container at one moment.
type Read struct {
	reports.Container
	Reading classes.Reading
}

// counters returns the number of counters that a container can have.
func (r Read) counters() int { return min(len(r.Reading), maxSeries) }

// Ring has samples of containers. A Ring does no I/O, and is not safe for concurrent use.
type Ring struct {
	budget int
	// `used` is the size of the samples and their values. `fixed` is the size of the containers, their counters and the series.
	used, fixed int
	// The counters refer to `series` by index.
	series  []classes.Series
	indexes map[classes.Series]int
	// `containers` has the containers by ID. `next` is the number of the newest one.
	containers map[string]*known
	next       uint64
	// times has the times of the samples, the oldest first.
	times []time.Time
	// added is the number of samples that were ever added. The number of a sample is its position among all of them.
	added int
	// incomplete is the number of containers that the newest sample lacks, or lacks values of, because there is no
	// room. `full` is true if there is no room for a value of the container that is being added.
	incomplete int
	full       bool
}

// known is a container that the ring has values of.
type known struct {
	reports.Container
	number uint64
	// `first` and `last` are the numbers of the first and the last sample that have the container.
	first, last int
	// incomplete is the number of the last sample that lacks values of the container, because there is no room. It is
	// -1 if there is none.
	incomplete int
	counters   []counter // sorted by series
}

// counter has the values of one series of a container.
type counter struct {
	series int
	last   float64 // what was read last
	// values has the values of successive samples, the last of which is the one before `to`: the growth per second if the
	// series is cumulative, and otherwise what was read. Earlier and later samples have the value 0.
	values []float32
	to     int
}

// NewRing returns a ring that occupies at most the given number of bytes.
func NewRing(budget int) *Ring {
	return &Ring{budget: budget, indexes: map[classes.Series]int{}, containers: map[string]*known{}}
}

// oldest returns the number of the oldest sample that the ring has.
func (r *Ring) oldest() int { return r.added - len(r.times) }

// Add adds a sample, and removes samples that are older than Keep or do not fit into the budget. It leaves out a sample
// that is not newer than the last one. It does not count what a container used before its first sample. A disk that
// appears in a later sample counts from 0. If a container is missing from some samples, its usage in this time is
// spread evenly over these samples. If there is no room for all containers, Add first leaves out those that the ring does not have yet.
// Each container occurs at most once in `reads`.
func (r *Ring) Add(now time.Time, reads []Read) {
	if len(r.times) > 0 && !now.After(r.times[len(r.times)-1]) {
		return
	}
	r.forget(reads)
	known := slices.DeleteFunc(slices.Clone(reads), func(read Read) bool { return r.containers[read.ID] == nil })
	others := slices.DeleteFunc(reads, func(read Read) bool { return r.containers[read.ID] != nil })

	r.incomplete = 0
	room := r.budget/2/leastSamples - sampleSize
	for _, read := range append(known, others...) {
		size := valueSize * len(read.Reading)
		if size > room || !r.know(read) {
			r.incomplete++
			continue
		}
		room -= size
		r.record(now, r.containers[read.ID], read.Reading)
	}
	r.times = append(r.times, now)
	r.used += sampleSize
	r.added++
	r.shrink(now)
}

// record adds the values of a container to the sample that is being added.
func (r *Ring) record(now time.Time, c *known, reading classes.Reading) {
	from, seconds := r.added, 1.0
	if c.first < r.added { // the values are also those of the samples that lack the container
		from = c.last + 1
		seconds = now.Sub(r.times[c.last-r.oldest()]).Seconds()
	}

	r.full = false
	for series, value := range reading {
		of := r.counter(c, series, value)
		if of == nil || value < 0 || math.IsNaN(value) {
			continue
		}
		before := of.last
		of.last = value
		if series.Cumulative() {
			// A counter that has decreased counts as not grown, because it is unknown from which value it began again.
			value = max(0, value-before) / seconds
		}
		if value > 0 {
			r.used += valueSize * of.set(float32(value), from, r.added)
		}
	}
	if r.full {
		r.incomplete++
		c.incomplete = r.added
	}
	c.last = r.added
}

// counter returns the counter of a series, and makes it if the container has none. It returns nil if there is no room.
func (r *Ring) counter(c *known, series classes.Series, value float64) *counter {
	index, ok := r.index(series)
	if !ok {
		return nil
	}
	at, found := slices.BinarySearchFunc(c.counters, index, func(c counter, index int) int { return cmp.Compare(c.series, index) })
	if !found {
		if !r.takes(counterSize) {
			return nil
		}
		switch series.Measure {
		case ReadBytes, WrittenBytes, Reads, Writes:
			if c.first < r.added {
				value = 0 // the kernel shows a disk from its first use on
			}
		default: // it may have counted for a long time before, e.g. before the plugin started
		}
		c.counters = slices.Insert(c.counters, at, counter{series: index, last: value})
	}
	return &c.counters[at]
}

// set sets a value for the samples `from` to `to`. It returns the number of values that it has added.
func (c *counter) set(value float32, from, to int) int {
	if len(c.values) == 0 {
		c.to = from
	}
	zeros, same := from-c.to, to+1-from
	if more := zeros + same; len(c.values)+more > cap(c.values) {
		c.values = append(make([]float32, 0, len(c.values)+more+spare), c.values...)
	}
	c.values = append(c.values, make([]float32, zeros)...)
	for range same {
		c.values = append(c.values, value)
	}
	c.to = to + 1
	return zeros + same
}

// forget removes the oldest samples until there is room for the new containers and counters in `reads`, or until all remaining
// containers are in the last sample.
func (r *Ring) forget(reads []Read) {
	need := 0
	for _, read := range reads {
		has := 0
		if c := r.containers[read.ID]; c != nil {
			has = len(c.counters)
		} else {
			need += sizeOf(read.Container)
		}
		need += counterSize * max(0, read.counters()-has)
	}
	for r.fixed+need > r.budget/2 {
		first := r.added - 1
		for _, c := range r.containers {
			first = min(first, c.last)
		}
		if first >= r.added-1 {
			return
		}
		r.remove(max(0, first+1-r.oldest()))
	}
}

// know adds a container to the ring, unless the ring has it. It returns false if there is no room for the container and its counters.
func (r *Ring) know(read Read) bool {
	c := read.Container
	switch {
	case r.containers[c.ID] != nil:
		return true
	case r.fixed+sizeOf(c)+counterSize*read.counters() > r.budget/2:
		return false
	}
	r.fixed += sizeOf(c)
	for _, text := range []*string{&c.ID, &c.PodUID, &c.Namespace, &c.Pod, &c.Name} {
		*text = strings.Clone(*text) // so that the larger text of which it may be a part can be freed
	}
	r.next++
	r.containers[c.ID] = &known{
		Container: c, number: r.next, first: r.added, last: r.added, incomplete: -1, counters: make([]counter, 0, read.counters()),
	}
	return true
}

// takes reserves room for a counter or a series. It returns false if there is none.
func (r *Ring) takes(bytes int) bool {
	if r.fixed+bytes > r.budget/2 {
		r.full = true
		return false
	}
	r.fixed += bytes
	return true
}

func (r *Ring) index(series classes.Series) (int, bool) {
	at, found := r.indexes[series]
	if !found {
		if len(r.series) == maxSeries || !r.takes(seriesSize+len(series.Part)) {
			r.full = true
			return 0, false
		}
		series.Part = strings.Clone(series.Part)
		at = len(r.series)
		r.indexes[series] = at
		r.series = append(r.series, series)
	}
	return at, true
}

// shrink removes samples that are older than Keep or do not fit into the budget.
func (r *Ring) shrink(now time.Time) {
	old := 0
	for old < len(r.times)-1 && now.Sub(r.times[old]) > Keep {
		old++
	}
	r.remove(old)
	for len(r.times) > 1 && r.Bytes() > r.budget {
		r.remove(1)
	}
}

// remove removes the `old` oldest samples, and the containers that no other sample has.
func (r *Ring) remove(old int) {
	if old == 0 {
		return
	}
	r.times = slices.Delete(r.times, 0, old)
	r.used -= sampleSize * old
	maps.DeleteFunc(r.containers, func(_ string, c *known) bool {
		for i := range c.counters {
			r.used -= valueSize * c.counters[i].forget(r.oldest())
		}
		if c.last >= r.oldest() {
			return false
		}
		r.fixed -= sizeOf(c.Container) + counterSize*len(c.counters)
		return true
	})
}

// forget removes the values of the samples before `oldest`, and returns their number.
func (c *counter) forget(oldest int) int {
	old := min(len(c.values), max(0, len(c.values)-(c.to-oldest)))
	if c.values = slices.Delete(c.values, 0, old); cap(c.values)-len(c.values) > 2*spare {
		c.values = append(make([]float32, 0, len(c.values)+spare), c.values...)
	}
	return old
}

// Bytes returns how many bytes the ring occupies, as it counts them.
func (r *Ring) Bytes() int { return r.fixed + r.used }
