// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import "sync"

// memo keeps the results of calls by key. Its zero value is empty.
type memo[K comparable, V any] struct {
	// mu guards the fields below.
	mu    sync.Mutex
	known map[K]V
}

// get returns the result of an earlier call for the key, or makes the call. It holds no lock during the call, because
// the call may hang in the kernel. So two callers can make the same call concurrently.
func (m *memo[K, V]) get(key K, call func() V) V {
	m.mu.Lock()
	result, known := m.known[key]
	m.mu.Unlock()
	if known {
		return result
	}

	result = call()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[K]V{}
	}
	m.known[key] = result
	return result
}
