// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"
)

// The agent calls MoveThreads at these intervals. MoveThreads moves threads into the class of their container if the container's class
// was changed.
const (
	// movedInterval is the interval while there are such containers, unless the calls take long.
	movedInterval = 40 * time.Millisecond
	// threadsInterval is the interval while there are none.
	threadsInterval = 500 * time.Millisecond
	// lastThreads is the longest interval, also after an event. Without this limit, the pause after a call that waited long for another
	// change would be long too.
	lastThreads = 15 * time.Second
)

// untilThreads returns the pause before the next call of MoveThreads, given how many containers the last call looked at, and how long it
// took. Calls at intervals of less than threadsInterval take at most 0.5% of the time, and other calls at most 2%.
func untilThreads(containers int, took time.Duration) time.Duration {
	pause := max(threadsInterval, afterEvent(took))
	if containers > 0 {
		pause = min(pause, max(movedInterval, 199*took))
	}
	return pause
}

// afterEvent returns the pause between a call of MoveThreads and the next one that an event causes. These calls take at most 2% of the time.
func afterEvent(took time.Duration) time.Duration { return min(49*took, lastThreads) }

// followThreads calls the function `move` periodically, and when a process has joined a resctrl group. `move` returns the number of
// containers that it has looked at.
func followThreads(ctx context.Context, joined <-chan struct{}, move func(context.Context) (containers int)) {
	timer := time.NewTimer(threadsInterval)
	defer timer.Stop()
	var soonest time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-joined:
			timer.Reset(time.Until(soonest))
		case <-timer.C:
			began := time.Now()
			containers := move(ctx)
			took := time.Since(began)
			soonest = time.Now().Add(afterEvent(took))
			timer.Reset(untilThreads(containers, took))
		}
	}
}
