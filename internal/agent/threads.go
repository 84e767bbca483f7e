// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
)

const (
	// threadsInterval is the shortest time between two periodic checks of all threads.
	threadsInterval = 500 * time.Millisecond
	// newThreadsInterval is the shortest time between two checks of new threads while there are containers whose class was
	// changed.
	newThreadsInterval = 40 * time.Millisecond
	// longestPause is the longest pause after a call.
	longestPause = 15 * time.Second
	// credit is the longest time without calls that counts. After such a time, calls may follow each other without pauses
	// until they have used their share of this time.
	credit = 10 * time.Second
)

// threadFollower moves the threads of containers whose class was changed.
type threadFollower struct {
	// joined has a value when a process has joined the resctrl group of a class that the container of the process has left.
	joined <-chan struct{}
	// move moves all threads, or those that were not there at the last call. All threads are moved when `joined` has a value,
	// and periodically. New threads are moved more often, because that costs less.
	move func(ctx context.Context, onlyNew bool) reconcile.ThreadCheck
	// events limits the calls that `joined` causes. periodic limits all other calls.
	periodic, events budget
}

// run makes the calls until ctx ends.
func (f *threadFollower) run(ctx context.Context) {
	var last reconcile.ThreadCheck
	joined, next, due := false, time.Now().Add(threadsInterval), time.Now()
	timer := time.NewTimer(threadsInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.joined:
			joined = true
		case now := <-timer.C:
			switch {
			case joined && !now.Before(f.events.paid):
				joined, last = false, f.move(ctx, false)
				f.events.spend(last)
			case !now.Before(next):
				onlyNew := now.Before(due)
				last = f.move(ctx, onlyNew)
				if !onlyNew {
					due = now.Add(max(threadsInterval, min(200*last.Took, longestPause))) // leaves most of the budget to the checks of new threads
				}
				f.periodic.spend(last)
				next = f.nextCall(last.Containers > 0)
			}
		}

		at := next
		if joined && f.events.paid.Before(at) {
			at = f.events.paid
		}
		timer.Reset(time.Until(at))
	}
}

// nextCall returns the time of the next periodic call. `follows` reports whether there are containers whose class was changed.
func (f *threadFollower) nextCall(follows bool) time.Time {
	next := time.Now().Add(threadsInterval)
	if follows {
		next = time.Now().Add(newThreadsInterval)
	}
	if next.Before(f.periodic.paid) {
		return f.periodic.paid
	}
	return next
}

// budget limits calls to a share of a CPU: 2% for calls that find no thread to move, and 20% for calls that move threads,
// which follow a start of processes in a container. Such a start takes much longer than the call.
type budget struct {
	// paid is the time before which no call may begin.
	paid time.Time
}

// spend postpones the next call after a call.
func (b *budget) spend(call reconcile.ThreadCheck) {
	share := 50 * call.Took
	if call.Moved > 0 {
		share = 5 * call.Took
	}
	now := time.Now()
	if oldest := now.Add(-credit); b.paid.Before(oldest) {
		b.paid = oldest
	}
	b.paid = b.paid.Add(share)
	if latest := now.Add(longestPause); b.paid.After(latest) {
		b.paid = latest
	}
}
