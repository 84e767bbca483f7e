// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history keeps what containers have used and how long they have waited, for some minutes, in a bounded number
// of bytes. A sample has the values of all containers at one moment. A Window shows the samples as points, which are
// the times between them, and as tracks: a Track has the values of one container, by series.
package history

import (
	"cmp"
	"encoding/binary"
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
// container.
const (
	containerSize = 1400
	counterSize   = 24
	gapSize       = 16
	sampleSize    = 64
	seriesSize    = 200
	// valueSize is the maximum size of a value of a sample with its series.
	valueSize = binary.MaxVarintLen16 + binary.MaxVarintLen64
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

// Ring has samples of containers, the oldest first. For a cumulative series, a sample has the growth since the sample
// before; for others, it has the value. It leaves out zeros. A Ring does no I/O, and is not safe for concurrent use.
type Ring struct {
	budget int
	// `used` is the size of the samples and gaps. `fixed` is the size of the containers, their counters and the series.
	used, fixed int
	// The counters and samples refer to `series` by index.
	series  []classes.Series
	indexes map[classes.Series]int
	// `containers` has the containers by ID. `next` is the number of the newest one.
	containers map[string]*known
	next       uint64
	samples    []sample
	// added is the number of samples that were ever added.
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
	// `first` and `last` are the numbers of the first and the last sample that have the container. The ring counts all
	// samples that were ever added.
	first, last int
	// incomplete is the number of the last sample that lacks values of the container, because there is no room. It is
	// -1 if there is none.
	incomplete int
	gaps       []gap
	counters   []counter
}

// gap is a run of successive samples that lack a container. `samples` is the length of the run, and `to` is the number
// of the sample after it.
type gap struct{ to, samples int }

// counter is the last value of a cumulative series, in units of the ring.
type counter struct {
	series int
	value  uint64
}

// sample has the values of one moment. `data` is a sequence of varints: for each container the difference between its
// number and that of the container before, the number of its values, and for each value the index of its series and the
// value.
type sample struct {
	time time.Time
	data []byte
}

// NewRing returns a ring that occupies at most the given number of bytes.
func NewRing(budget int) *Ring {
	return &Ring{budget: budget, indexes: map[classes.Series]int{}, containers: map[string]*known{}}
}

// Add adds a sample, and removes samples that are older than Keep or do not fit into the budget. It leaves out a sample
// that is not newer than the last one. It does not count what a container used before its first sample. A disk that
// appears in a later sample counts from 0. If a container is missing from some samples, its usage in this time is
// spread evenly over these samples. If there is no room for all containers, Add first leaves out those that the ring does not have yet.
func (r *Ring) Add(now time.Time, reads []Read) {
	if len(r.samples) > 0 && !now.After(r.samples[len(r.samples)-1].time) {
		return
	}
	reads = r.admit(reads)
	slices.SortFunc(reads, func(a, b Read) int { return cmp.Compare(r.containers[a.ID].number, r.containers[b.ID].number) })
	reads = slices.CompactFunc(reads, func(a, b Read) bool { return a.ID == b.ID })

	var data []byte
	before := uint64(0)
	for _, read := range reads {
		c := r.containers[read.ID]
		if missed := r.added - c.last - 1; missed > 0 {
			c.gaps = append(c.gaps, gap{r.added, missed})
			r.used += gapSize
		}
		r.full = false
		values, n := r.values(c, read.Reading)
		if r.full {
			r.incomplete++
			c.incomplete = r.added
		}
		if n > 0 {
			data = binary.AppendUvarint(data, c.number-before)
			data = binary.AppendUvarint(data, uint64(n))
			data = append(data, values...)
			before = c.number
		}
		c.last = r.added
	}
	r.samples = append(r.samples, sample{now, slices.Clip(data)})
	r.used += sampleSize + len(data)
	r.added++
	r.shrink(now)
}

// admit adds the containers that the ring does not have, and returns those of `reads` for which there is room.
func (r *Ring) admit(reads []Read) []Read {
	r.forget(reads)
	known := slices.DeleteFunc(slices.Clone(reads), func(read Read) bool { return r.containers[read.ID] == nil })
	others := slices.DeleteFunc(reads, func(read Read) bool { return r.containers[read.ID] != nil })

	r.incomplete = 0
	room := r.budget/2/leastSamples - sampleSize
	return slices.DeleteFunc(append(known, others...), func(read Read) bool {
		size := valueSize * (1 + len(read.Reading))
		if size > room || !r.know(read) {
			r.incomplete++
			return true
		}
		room -= size
		return false
	})
}

// forget removes the oldest samples until there is room for the new containers in `reads`, or until all remaining
// containers are in the last sample.
func (r *Ring) forget(reads []Read) {
	need := 0
	for _, read := range reads {
		if r.containers[read.ID] == nil {
			need += sizeOf(read.Container) + counterSize*len(read.Reading)
		}
	}
	for r.fixed+need > r.budget/2 {
		first := r.added - 1
		for _, c := range r.containers {
			first = min(first, c.last)
		}
		if first >= r.added-1 {
			return
		}
		r.remove(max(0, first+1-(r.added-len(r.samples))))
	}
}

// know adds a container to the ring, unless the ring has it. It returns false if there is no room.
func (r *Ring) know(read Read) bool {
	if r.containers[read.ID] != nil {
		return true
	}
	c := read.Container
	if !r.takes(sizeOf(c)) {
		return false
	}
	for _, text := range []*string{&c.ID, &c.PodUID, &c.Namespace, &c.Pod, &c.Name} {
		*text = strings.Clone(*text) // so that the larger text of which it may be a part can be freed
	}
	r.next++
	r.containers[c.ID] = &known{Container: c, number: r.next, first: r.added, last: r.added, incomplete: -1}
	return true
}

// takes reserves room for containers, counters or series. It returns false if there is none.
func (r *Ring) takes(bytes int) bool {
	if r.fixed+bytes > r.budget/2 {
		r.full = true
		return false
	}
	r.fixed += bytes
	return true
}

// values encodes the values of a container that are not 0, and updates its counters.
func (r *Ring) values(c *known, reading classes.Reading) (data []byte, n int) {
	for series, value := range reading {
		at, ok := r.index(series)
		if !ok || value < 0 || math.IsNaN(value) {
			continue
		}
		units := uint64(math.Round(value * unitsOf(series)))
		if series.Cumulative() {
			units = r.grown(c, at, units)
		}
		if units > 0 {
			data = binary.AppendUvarint(binary.AppendUvarint(data, uint64(at)), units)
			n++
		}
	}
	return data, n
}

// grown returns by how much a counter has grown since the last sample, and stores its value. It returns 0 for a counter
// that has decreased, because it is unknown from which value the counter began again.
func (r *Ring) grown(c *known, series int, value uint64) uint64 {
	at, found := slices.BinarySearchFunc(c.counters, series, func(c counter, series int) int { return cmp.Compare(c.series, series) })
	if !found {
		if !r.takes(counterSize) {
			return 0
		}
		c.counters = slices.Insert(c.counters, at, counter{series, value})
		switch r.series[series].Measure {
		case ReadBytes, WrittenBytes, Reads, Writes:
			if c.first < r.added {
				return value // the kernel shows a disk from its first use on
			}
		}
		return 0 // it may have counted for a long time before, e.g. before the plugin started
	}
	before := c.counters[at].value
	c.counters[at].value = value
	return value - min(before, value)
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

// unitsOf returns how many units of the ring make one unit of a series. The ring keeps times in microseconds, as the
// kernel counts them.
func unitsOf(series classes.Series) float64 {
	if strings.Contains(series.Measure, "_seconds") {
		return 1e6
	}
	return 1
}

// shrink removes samples that are older than Keep or do not fit into the budget.
func (r *Ring) shrink(now time.Time) {
	old, used := 0, r.fixed+r.used
	for old < len(r.samples)-1 && (now.Sub(r.samples[old].time) > Keep || used > r.budget) {
		used -= sampleSize + len(r.samples[old].data)
		old++
	}
	if old > 0 {
		r.remove(old)
	}
}

// remove removes the `old` oldest samples, and the containers that no other sample has.
func (r *Ring) remove(old int) {
	for _, s := range r.samples[:old] {
		r.used -= sampleSize + len(s.data)
	}
	r.samples = append(r.samples[:0:0], r.samples[old:]...) // a new array, so that the old samples can be freed
	oldest := r.added - len(r.samples)
	maps.DeleteFunc(r.containers, func(_ string, c *known) bool {
		past := 0
		for past < len(c.gaps) && c.gaps[past].to <= oldest {
			past++
		}
		c.gaps = slices.Delete(c.gaps, 0, past)
		r.used -= gapSize * past
		if c.last >= oldest {
			return false
		}
		r.used -= gapSize * len(c.gaps)
		r.fixed -= sizeOf(c.Container) + counterSize*len(c.counters)
		return true
	})
}

// Bytes returns how many bytes the ring occupies, as it counts them.
func (r *Ring) Bytes() int { return r.fixed + r.used }
