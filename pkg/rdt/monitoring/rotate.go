// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
)

// observedSeconds is the measure of how long a container has had a counter of its total memory bandwidth (resctrl.MBMTotal).
const observedSeconds = "memory_bandwidth_observed_seconds_total"

// rotation records which containers had counters of memory bandwidth, and when, so that each container gets its turn. It is lost when
// this program ends: the turns then begin anew.
type rotation struct {
	mu sync.Mutex // guards the fields below, and is never held during I/O
	// round is the number of the present turn, which began at the time `began`.
	round int
	began time.Time
	// turns has the containers with a monitoring group, by ID.
	turns map[string]*turns
}

// turns describes the turns of a container.
type turns struct {
	// last has the number of the last turn in which the container had a counter, by counter.
	last map[resctrl.Counter]int
	// observed has how long the counter of each cache has counted, without the present turn, which began at since[cache].
	observed map[int]time.Duration
	since    map[int]time.Time
}

// pause records that the counter of a cache counts no more.
func (t *turns) pause(cache int, now time.Time) {
	t.observed[cache] += now.Sub(t.since[cache])
	delete(t.since, cache)
}

// RotateEvery implements classes.Rotator.
func (cs *Containers) RotateEvery() time.Duration {
	if m := cs.machine.Load(); m != nil && m.Info.AssignsCounters && m.Selection.monitorsBandwidth() {
		return m.Selection.Rotate
	}
	return 0
}

// next begins the next turn if the present one has taken long enough, and reports whether it has.
func (r *rotation) next(now time.Time, every time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	due := every > 0 && now.Sub(r.began) >= every-every/10 // callers are not exactly on time
	if due || r.round == 0 {
		r.round++
		r.began = now
	}
	return due
}

// turnsOf returns the number of the last turn in which a container had each counter.
func (r *rotation) turnsOf(id string) map[resctrl.Counter]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.turns[id]; t != nil {
		return maps.Clone(t.last)
	}
	return nil
}

// record records which counters of all transfers a container has now.
func (r *rotation) record(id string, has resctrl.Assignments, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.turns[id]
	if t == nil {
		t = &turns{last: map[resctrl.Counter]int{}, observed: map[int]time.Duration{}, since: map[int]time.Time{}}
		r.turns[id] = t
	}
	for counter, assigned := range has {
		_, counts := t.since[counter.Domain]
		switch {
		case counter.Event != resctrl.MBMTotal:
		case assigned && !counts:
			t.since[counter.Domain] = now
		case !assigned && counts:
			t.pause(counter.Domain, now)
		}
		if assigned {
			t.last[counter] = r.round
		}
	}
}

// had reports whether a container has had a counter.
func (r *rotation) had(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.turns[id]; t != nil {
		for counter := range t.last {
			if counter.Event == resctrl.MBMTotal {
				return true
			}
		}
	}
	return false
}

// observed returns how long the counters of a container have counted. The reading is empty if the container never had a
// counter.
func (r *rotation) observed(id string, now time.Time) classes.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	reading := classes.Reading{}
	t := r.turns[id]
	if t == nil {
		return reading
	}
	add := func(cache int, took time.Duration) {
		reading[classes.Series{Measure: observedSeconds, Part: strconv.Itoa(cache)}] += took.Seconds()
	}
	for cache, took := range t.observed {
		add(cache, took)
	}
	for cache, since := range t.since {
		add(cache, now.Sub(since))
	}
	return reading
}

// pause records that a container has no monitoring group, and so no counters, any more.
func (r *rotation) pause(id string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.turns[id]; t != nil {
		for cache := range t.since {
			t.pause(cache, now)
		}
	}
}

func (r *rotation) forget(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, id)
}

// noteCounter records whether a monitored container lacks a counter. If containers have counters in turn, a container
// that has had one does not count as lacking it.
func (cs *Containers) noteCounter(id string, lacks bool) {
	m := cs.machine.Load()
	asked := m != nil && m.Selection.monitorsBandwidth()
	cs.monitors.setUncounted(id, lacks && asked && (cs.RotateEvery() == 0 || !cs.rotation.had(id)))
}

// used returns the reading of a container, with its totals in place of the kernel's counters. If containers have counters in turn, the
// container keeps its totals while it has no counter, and the reading also has the time for which its counters have counted.
func (cs *Containers) used(id string, raw classes.Reading) classes.Reading {
	if cs.RotateEvery() == 0 {
		return cs.counts.used(id, raw)
	}
	reading := cs.rotation.observed(id, cs.now())
	for series := range reading {
		raw[classes.Series{Measure: bandwidthTotal, Part: series.Part}] = 0 // used replaces it by the total
	}
	for series, value := range cs.counts.used(id, raw) {
		reading[series] = value
	}
	return reading
}
