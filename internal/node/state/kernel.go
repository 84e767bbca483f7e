// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ErrKernelHangs is the error of a call into the kernel that did not return in time, or that was not made because
// earlier calls have not returned.
var ErrKernelHangs = errors.New("the kernel does not answer; look for blocked tasks in the kernel log")

// maxBlocked limits the number of this process's threads that are blocked in the kernel.
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

// MayCall returns an error if the same call into the kernel is blocked, or if too many calls are blocked. The caller must
// then not make the call, so that the number of blocked threads is limited.
func (s *Store) MayCall(c Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if b, blocked := s.blocked[c]; blocked {
		return fmt.Errorf("%s: %w; blocked since %s", b.What, ErrKernelHangs, b.Since.UTC().Format(time.RFC3339))
	}
	if len(s.blocked) >= maxBlocked {
		return fmt.Errorf("%w; %d calls for other containers are blocked", ErrKernelHangs, len(s.blocked))
	}
	return nil
}

// Block records that a call has not returned in time.
func (s *Store) Block(c Call, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked[c] = BlockedCall{Call: c, What: what, Since: s.now()}
	s.notify()
}

// Unblock records that a blocked call has returned.
func (s *Store) Unblock(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.blocked, c)
	s.notify()
}

// Blocked returns an error that describes blocked calls, or nil if there are none.
func Blocked(calls []BlockedCall) error {
	if len(calls) == 0 {
		return nil
	}
	return fmt.Errorf("%w; calls that have not returned: %d; the oldest has been blocked since %s: %s",
		ErrKernelHangs, len(calls), calls[0].Since.UTC().Format(time.RFC3339), calls[0].What)
}

// blockedCalls returns the blocked calls, the oldest first. The caller holds mu.
func (s *Store) blockedCalls() []BlockedCall {
	return slices.SortedFunc(maps.Values(s.blocked), func(a, b BlockedCall) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.What, b.What))
	})
}
