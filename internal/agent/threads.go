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
	// lookTime is how long a look may take. The kernel hangs if a look takes longer.
	lookTime = 2 * time.Second
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
	// looking gets the result of a look that has not ended in time. It is nil if there is none.
	looking chan look
	// cost is the time that counts for the last look: how long it took, but at most twice the cost of the look before.
	cost time.Duration
	// events limits the calls that `joined` causes. looks limits the looks and all other calls.
	looks, events budget
}

// look is the result of a look: the threads of each container by its ID, and whether some of them are new.
type look struct {
	threads map[string][]int
	found   bool
	took    time.Duration
}

// run looks and calls until ctx ends.
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
				joined, last = false, f.move(ctx)
				f.events.spend(last.Took, last.Moved > 0)
			case !now.Before(next):
				if f.anyNew(last.Containers) || !now.Before(due) {
					last = f.move(ctx)
					f.looks.spend(last.Took, last.Moved > 0)
					due = now.Add(max(threadsInterval, min(200*last.Took, longestPause))) // most of the time is for the looks
				}
				next = f.nextLook(len(last.Containers) > 0)
			}
		}

		at := next
		if joined && f.events.paid.Before(at) {
			at = f.events.paid
		}
		timer.Reset(time.Until(at))
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

// anyNew looks at the threads of containers, and reports whether some are new. If the kernel hangs, it returns false, and
// does not look again until the kernel has answered. If the runtime puts a thread into another group after the look, that
// is an event.
func (f *threadFollower) anyNew(containers []classes.Holder) bool {
	limit := time.Duration(0)
	if f.looking == nil {
		looking, seen := make(chan look, 1), f.seen
		go func() { looking <- f.look(containers, seen) }() // nothing waits for it if the kernel hangs
		f.looking, limit = looking, lookTime
	}

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case now := <-f.looking:
		// A look that takes much longer than the one before has mostly waited for a CPU.
		f.cost = min(max(now.took, time.Microsecond), 2*cmp.Or(f.cost, longestPause))
		f.looks.spend(f.cost, false)
		f.looking, f.seen = nil, now.threads
		return now.found
	case <-timer.C:
		return false
	}
}

// look lists the threads of containers. `seen` has the result of the look before.
func (f *threadFollower) look(containers []classes.Holder, seen map[string][]int) look {
	began, now := time.Now(), look{threads: make(map[string][]int, len(containers))}
	for _, c := range containers {
		threads, err := f.list(c)
		now.found = now.found || err != nil || slices.ContainsFunc(threads, func(tid int) bool {
			_, known := slices.BinarySearch(seen[c.ID], tid)
			return !known
		})
		now.threads[c.ID] = threads
	}
	now.took = time.Since(began)
	return now
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
	now := time.Now()
	if oldest := now.Add(-credit); b.paid.Before(oldest) {
		b.paid = oldest
	}
	b.paid = b.paid.Add(share)
	if latest := now.Add(longestPause); b.paid.After(latest) {
		b.paid = latest
	}
}
