// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
)

// The agent calls MoveThreads at these intervals. MoveThreads moves threads into the class of their container if the container's class
// was changed.
const (
	// movedInterval is the interval while there are containers whose class was changed. It becomes longer if the calls
	// take long.
	movedInterval = 40 * time.Millisecond
	// threadsInterval is the interval while there are no such containers.
	threadsInterval = 500 * time.Millisecond
	// lastThreads is the longest interval, also after an event.
	lastThreads = 15 * time.Second
)

// untilThreads returns the pause after a call of MoveThreads. An event can end the pause earlier.
func untilThreads(last reconcile.ThreadCheck) time.Duration {
	interval := threadsInterval
	if last.Containers > 0 {
		interval = movedInterval
	}
	return max(interval, shortestPause(last.Took, last.Moved > 0))
}

// shortestPause returns the shortest pause after a call of MoveThreads. Its length limits the CPU time of the calls:
// those that find nothing to move take at most 2% of the time. The others take at most 20%, because the exec whose
// process they move takes much longer.
func shortestPause(took time.Duration, moved bool) time.Duration {
	if moved {
		return min(4*took, lastThreads)
	}
	return min(49*took, lastThreads)
}

// followThreads calls the function `move` periodically, and when a process has joined the resctrl group of a class that its container has
// left.
func followThreads(ctx context.Context, joined <-chan struct{}, move func(context.Context) reconcile.ThreadCheck) {
	timer := time.NewTimer(threadsInterval)
	defer timer.Stop()
	var soonest time.Time // the earliest time of the next call that an event causes
	var before reconcile.ThreadCheck
	byEvent := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-joined:
			byEvent = true
			timer.Reset(time.Until(soonest))
		case <-timer.C:
			last := move(ctx)
			if byEvent {
				// A process that joins can cause two events, and the call after the second event then finds nothing to move.
				soonest = time.Now().Add(shortestPause(last.Took, last.Moved+before.Moved > 0))
				byEvent, before = false, last
			}
			timer.Reset(untilThreads(last))
		}
	}
}
