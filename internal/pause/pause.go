// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pause waits: for a time, and for the first of several.
package pause

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Shortest is the shortest of times to wait, of which 0 is never.
func Shortest(waits ...time.Duration) time.Duration {
	var first time.Duration
	for _, wait := range waits {
		if wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	return first
}
