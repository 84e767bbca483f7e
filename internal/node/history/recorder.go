// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// A sample begins no more readings after recordTime, or after the interval if that is shorter.
	recordTime = 5 * time.Second
	// readTime limits the reading of one container.
	readTime = 2 * time.Second
	// maxBlocked is the number of readings that may be blocked in the kernel. If so many are, nothing is recorded until
	// one of them returns.
	maxBlocked = 4
)

// ErrNotRecorded means that the history is off, or that this machine has no counters to record.
var ErrNotRecorded = errors.New("nothing is recorded")

// Recorder reads the counters of all containers at an interval, and keeps them in a ring. With the interval 0 it does nothing.
type Recorder struct {
	store    *state.View
	meter    *usage.Meter
	guard    *kernel.Guard // separate from the guard of the hooks, so that blocked readings do not count there
	counters *Counters
	interval time.Duration
	now      func() time.Time
	borrowed *semaphore.Weighted

	mu   sync.Mutex // guards ring
	ring *Ring
}

// New returns a recorder. It records nothing if Unrecorded returns an error.
func New(store *state.View, meter *usage.Meter, guard *kernel.Guard, counters *Counters, interval time.Duration, now func() time.Time) *Recorder {
	r := &Recorder{
		store: store, meter: meter, guard: guard.Apart(maxBlocked), counters: counters, interval: interval, now: now, borrowed: semaphore.NewWeighted(1),
	}
	if r.Unrecorded() == nil {
		r.ring = NewRing(Budget)
	}
	return r
}

// Unrecorded returns the reason why nothing is recorded, in one line, or nil.
func (r *Recorder) Unrecorded() error {
	switch {
	case r.interval == 0:
		return errors.New("start qos-nri-plugin with --history-interval=15s, on a node with cgroup v2")
	case r.counters == nil:
		return errors.New("the cgroups of this node were not found when the plugin started; mount them, and restart the plugin")
	}
	return r.counters.Supported()
}

// HistoryInterval returns the interval. It is 0 if nothing is recorded.
func (r *Recorder) HistoryInterval() time.Duration {
	if r.ring == nil {
		return 0
	}
	return r.interval
}

// FollowHistory records at the interval until `ctx` ends. It returns at once if nothing is recorded. RecordHistory must
// not be called at the same time.
func (r *Recorder) FollowHistory(ctx context.Context) {
	pause.Every(ctx, r.HistoryInterval(), func() { r.RecordHistory(ctx) })
}

// RecordHistory adds one sample. It takes what the meter measures, and reads the other counters itself. It leaves out the
// containers for which the kernel does not answer in time; their next sample has what they used meanwhile.
func (r *Recorder) RecordHistory(ctx context.Context) {
	if r.ring == nil {
		return
	}
	measured := r.measured(ctx)
	ctx, cancel := context.WithTimeout(ctx, min(recordTime, r.interval)) // after the meter, whose time a slow resctrl may use up
	defer cancel()

	running := r.store.Where(func(e *state.Holding) bool { return e.Phase.Started() && e.Scope() == classes.ContainerScope })
	now := r.now()
	r.counters.Begin()
	reads := make([]Read, 0, len(running))
	var worker kernel.Worker
	defer worker.End()
	kernel.Calls[classes.Reading]{
		Guard: r.guard, Limit: readTime,
		Call: func(i int) kernel.Call { return kernel.Call{Resource: "history", HolderID: running[i].ID} },
		What: func(i int) string { return "read the counters of " + running[i].String() },
		Do: func(_ context.Context, i int) (classes.Reading, error) {
			return r.counters.Read(running[i].Holder, measured[running[i].ID]...)
		},
		// A container with an error has ended, or the next sample tries again. A sample with a part of its values would let the others count
		// from 0 later.
		Then: func(i int, reading classes.Reading, err error) {
			if e := &running[i]; err == nil {
				reads = append(reads, Read{reports.Container{ID: e.ID, PodUID: e.PodUID, Namespace: e.PodNamespace, Pod: e.PodName, Name: e.Container}, reading})
			}
		},
	}.Each(ctx, &worker, len(running), errors.New("the kernel did not answer in time"))

	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring.Add(now, reads)
}

// measured returns what the meter measures of each container. It is empty if the meter does not answer in time.
func (r *Recorder) measured(ctx context.Context) map[string][]classes.Reading {
	byID := map[string][]classes.Reading{}
	sample, _ := r.meter.UsageNow(ctx)
	for _, h := range sample.Holders {
		if h.Scope() == classes.ContainerScope {
			byID[h.ID] = append(byID[h.ID], h.Reading)
		}
	}
	return byID
}

// Borrow returns what was recorded. Only one caller at a time has it, because it takes some MiB; `ctx` limits how long
// Borrow waits for other callers. The caller must call `done` at the end.
func (r *Recorder) Borrow(ctx context.Context) (w Window, done func(), err error) {
	if err := r.Unrecorded(); err != nil {
		return w, nil, fmt.Errorf("%w: %w", ErrNotRecorded, err)
	}
	if err := r.borrowed.Acquire(ctx, 1); err != nil {
		return w, nil, fmt.Errorf("wait for the answer to another request: %w", err)
	}
	return r.History(), func() { r.borrowed.Release(1) }, nil
}

// History returns what was recorded.
func (r *Recorder) History() Window {
	if r.ring == nil {
		return Window{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ring.Window()
}
