// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package feedtest has a feed whose state a test sets.
package feedtest

import (
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/nodefeed"
)

// Feed stands in for a nodefeed.Feed. It is safe for concurrent use.
type Feed struct {
	mu      sync.Mutex // guards all below
	state   nodefeed.State
	changed chan struct{}
}

// New makes a feed with a state.
func New(state nodefeed.State) *Feed {
	return &Feed{state: state, changed: make(chan struct{})}
}

// Get returns the state, and a channel that is closed when there is another.
func (f *Feed) Get() (state nodefeed.State, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.changed
}

// Set makes another state that of now.
func (f *Feed) Set(state nodefeed.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = state
	close(f.changed)
	f.changed = make(chan struct{})
}
