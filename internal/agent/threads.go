// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	// threadsInterval is the longest time between two calls of MoveThreads, unless the calls take long.
	threadsInterval = 500 * time.Millisecond
	// looksInterval is the time between two looks at the threads of containers whose class was changed.
	looksInterval = 40 * time.Millisecond
	// longestPause is the longest pause after a call, however long it took.
	longestPause = 15 * time.Second
	// credit is how much pause a time without calls can save for later ones.
	credit = 10 * time.Second
)

// threadFollower calls MoveThreads, which moves the threads of containers whose class was changed into this class: periodically,
// when a container has other threads than before, and when a process has joined the resctrl group of a class that its container has left.
type threadFollower struct {
	joined <-chan struct{}
	move   func(context.Context) reconcile.ThreadCheck
	// list lists the threads of a container. Unlike MoveThreads, it does not read resctrl, whose lists of tasks take the kernel longer the
	// more threads the node has.
	list func(classes.Holder) ([]int, error)
	// seen has the threads of each container that MoveThreads has checked, by the container's ID.
	seen map[string][]int
	// looks is for the periodic looks and the calls that follow from them. events is for the calls because of `joined`.
	looks, events budget
}

// run follows the threads until ctx ends. A call to `list` for which the kernel hangs delays no hook.
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
				if f.changed(last.Containers) || !now.Before(due) {
					last, due = f.move(ctx), now.Add(threadsInterval)
					f.looks.spend(last.Took, last.Moved > 0)
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

// nextLook returns the time of the next look. `follows` reports whether there are containers whose class was changed.
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

// changed reports whether a container has other threads than at the last call.
func (f *threadFollower) changed(containers []classes.Holder) bool {
	began := time.Now()
	now, changed := make(map[string][]int, len(containers)), false
	for _, c := range containers {
		threads, err := f.list(c)
		before, known := f.seen[c.ID]
		changed = changed || err != nil || !known || !slices.Equal(threads, before)
		now[c.ID] = threads
	}
	f.seen = now
	f.looks.spend(time.Since(began), false)
	return changed
}

// budget limits the time of calls. Calls that find nothing to move take at most 2% of the time, and other calls at most 20%: the exec whose
// process they move takes much longer.
type budget struct {
	// paid is the time until which the calls so far have used all time that they may take.
	paid time.Time
}

// spend notes how long a call took, and whether it has moved threads.
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
