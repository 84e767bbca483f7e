// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// threadsInterval is the shortest time between two periodic calls of MoveThreads.
	threadsInterval = 500 * time.Millisecond
	// looksInterval is the time between two looks at the threads of containers whose class was changed.
	looksInterval = 40 * time.Millisecond
	// longestPause is the longest pause after a call.
	longestPause = 15 * time.Second
	// credit is the longest time without calls that counts. After that time, calls may follow each other without a pause
	// until they have used their share of it.
	credit = 10 * time.Second
)

// threadFollower calls MoveThreads, which moves the threads of containers whose class was changed. It makes the calls
// when such a container has a new thread, when `joined` has a value, and periodically.
type threadFollower struct {
	// joined has a value when a process has joined the resctrl group of a class that the container of the process has left.
	joined <-chan struct{}
	move   func(context.Context) reconcile.ThreadCheck
	// list returns the sorted threads of a container. Unlike MoveThreads, it does not read resctrl. The more threads the node has,
	// the longer the kernel takes to list the tasks of a resctrl group.
	list func(classes.Holder) ([]int, error)
	// seen has the threads that each container had at the last look, by the container's ID.
	seen map[string][]int
	// look is the time that counts for the last look: how long it took, but at most twice the time of the look before.
	look time.Duration
	// events limits the calls that `joined` causes. looks limits the looks and all other calls.
	looks, events budget
}

// run looks and calls until ctx ends. It holds no lock while it calls `list`, so that no hook waits if the kernel hangs.
func (f *threadFollower) run(ctx context.Context) {
	var last reconcile.ThreadCheck
	joined, look, due := false, time.Now().Add(threadsInterval), time.Now()
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
				joined, last = false, f.move(ctx)
				f.events.spend(last.Took, last.Moved > 0)
			case !now.Before(look):
				if f.anyNew(last.Containers) || !now.Before(due) {
					last = f.move(ctx)
					f.looks.spend(last.Took, last.Moved > 0)
					due = now.Add(max(threadsInterval, min(200*last.Took, longestPause))) // most of the time is for the looks
				}
				look = f.nextLook(len(last.Containers) > 0)
			}
		}

		next := look
		if joined && f.events.paid.Before(look) {
			next = f.events.paid
		}
		timer.Reset(time.Until(next))
	}
}

// nextLook returns the time of the next look. `follows` reports whether there are containers to look at.
func (f *threadFollower) nextLook(follows bool) time.Time {
	next := time.Now().Add(threadsInterval)
	if follows {
		next = time.Now().Add(looksInterval)
	}
	if next.Before(f.looks.paid) {
		return f.looks.paid
	}
	return next
}

// anyNew reports whether one of the containers has threads that it did not have at the last look.
func (f *threadFollower) anyNew(containers []classes.Holder) bool {
	began := time.Now()
	now, found := make(map[string][]int, len(containers)), false
	for _, c := range containers {
		threads, err := f.list(c)
		found = found || err != nil || slices.ContainsFunc(threads, func(tid int) bool {
			_, seen := slices.BinarySearch(f.seen[c.ID], tid)
			return !seen
		})
		now[c.ID] = threads
	}
	f.seen = now

	// A look that takes much longer than the one before has mostly waited for a CPU.
	f.look = min(max(time.Since(began), time.Microsecond), 2*cmp.Or(f.look, longestPause))
	f.looks.spend(f.look, false)
	return found
}

// budget limits calls to a share of the time: 2% for calls that find no thread to move, and 20% for other calls. The exec
// whose process they move takes much longer.
type budget struct {
	// paid is the time before which no call may begin.
	paid time.Time
}

// spend postpones the next call. `took` is the duration of a call, and `moved` is true if the call has moved threads.
func (b *budget) spend(took time.Duration, moved bool) {
	share := 50 * took
	if moved {
		share = 5 * took
	}
	if oldest := time.Now().Add(-credit); b.paid.Before(oldest) {
		b.paid = oldest
	}
	b.paid = b.paid.Add(min(share, longestPause))
}
