// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cachetest has a watch cache for tests. The test sets its state.
package cachetest

import (
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
)

// Cache stands in for a nodecache.Cache. It is safe for concurrent use.
type Cache struct {
	mu      sync.Mutex // guards all below
	state   nodecache.State
	changed chan struct{}
}

// New makes a cache with a state.
func New(state nodecache.State) *Cache {
	return &Cache{state: state, changed: make(chan struct{})}
}

// Get returns the state, and a channel that is closed when the state changes.
func (c *Cache) Get() (state nodecache.State, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.state, c.changed
}

// Set replaces the state.
func (c *Cache) Set(state nodecache.State) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.state = state
	close(c.changed)
	c.changed = make(chan struct{})
}
