// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause waits for a duration, repeats something at an interval, and finds the shortest of several waits.
package pause

import (
	"context"
	"time"
)

// For waits for `d`, or until ctx ends.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Every calls a function at an interval until ctx ends. It returns at once if the interval is 0.
func Every(ctx context.Context, interval time.Duration, do func()) {
	if interval == 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// Shortest returns the shortest of several waits. A wait of 0 means that there is nothing to wait for, and is ignored.
func Shortest(waits ...time.Duration) time.Duration {
	var first time.Duration
	for _, wait := range waits {
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	return first
}
