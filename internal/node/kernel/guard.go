// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kernel waits for calls into the kernel for a limited time, and limits how many threads are blocked in calls
// that do not return.
package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrHangs is the error of a call into the kernel that did not return in time, or that was not made because earlier
// calls have not returned.
var ErrHangs = errors.New("the kernel does not answer; look for blocked tasks in the kernel log")

// maxBlocked limits the number of this process's threads that are blocked in the kernel. Guards made by Apart have their own limits.
const maxBlocked = 100

// Call identifies a call into the kernel by the resource, the class, and the container or sandbox that the call is about. A
// field that does not apply is empty.
type Call struct{ Resource, Class, HolderID string }

// BlockedCall is a call into the kernel that has not returned in time. Its thread waits until the kernel answers.
type BlockedCall struct {
	Call
	// What describes the call, e.g. "read the k8s.io/rdt class of pod default/web container main".
	What  string
	Since time.Time
}

// Guard knows the calls into the kernel that have not returned. It is safe for concurrent use.
type Guard struct {
	now     func() time.Time
	changed func()
	max     int

	mu      sync.Mutex // guards the fields below
	blocked map[Call]BlockedCall
	parts   []*Guard
}

// New returns a guard without blocked calls. The guard calls the function `changed` when the blocked calls have changed.
func New(now func() time.Time, changed func()) *Guard {
	return &Guard{now: now, changed: changed, max: maxBlocked, blocked: map[Call]BlockedCall{}}
}

// Apart returns a guard with its own limit, for calls that must not keep others from calling the kernel. The
// BlockedCalls of `g` include those of the new guard.
func (g *Guard) Apart(limit int) *Guard {
	part := New(g.now, g.changed)
	part.max = limit
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parts = append(g.parts, part)
	return part
}

// MayCall returns an error if the same call into the kernel is blocked, or if too many calls are blocked. The caller must
// then not make the call, so that the number of blocked threads is limited.
func (g *Guard) MayCall(c Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()

	if b, blocked := g.blocked[c]; blocked {
		return fmt.Errorf("%s: %w; blocked since %s", b.What, ErrHangs, b.Since.UTC().Format(time.RFC3339))
	}
	if len(g.blocked) >= g.max {
		return fmt.Errorf("%w; %d calls for other containers are blocked", ErrHangs, len(g.blocked))
	}
	return nil
}

// BlockedCalls returns the calls that have not returned, the oldest first.
func (g *Guard) BlockedCalls() []BlockedCall {
	g.mu.Lock()
	defer g.mu.Unlock()

	all := slices.Collect(maps.Values(g.blocked))
	for _, part := range g.parts {
		all = append(all, part.BlockedCalls()...)
	}
	slices.SortFunc(all, func(a, b BlockedCall) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.What, b.What))
	})
	return all
}

// block records that a call has not returned in time.
func (g *Guard) block(c Call, what string) {
	g.mu.Lock()
	g.blocked[c] = BlockedCall{Call: c, What: what, Since: g.now()}
	g.mu.Unlock()
	g.changed()
}

// unblock records that a blocked call has returned.
func (g *Guard) unblock(c Call) {
	g.mu.Lock()
	delete(g.blocked, c)
	g.mu.Unlock()
	g.changed()
}

// Error returns an error that describes blocked calls, or nil if there are none.
func Error(blocked []BlockedCall) error {
	if len(blocked) == 0 {
		return nil
	}
	return fmt.Errorf("%w; calls that have not returned: %d; the oldest has been blocked since %s: %s",
		ErrHangs, len(blocked), blocked[0].Since.UTC().Format(time.RFC3339), blocked[0].What)
}
