// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package statefulsets

import "time"

// backoff has the requests to the API server for one StatefulSet that have failed. They are not repeated before a time, whatever events come.
type backoff struct {
	spec     string // identifies what is requested
	failures int
	until    time.Time
	held     map[string]answer // by the claim whose patch has failed
	failed   bool              // the write of the object or of its status has failed
}

// answer is the phase and the message of a step whose patch has failed.
type answer struct {
	phase   phase
	message string
}

// begin returns the backoff for a reconcile. A new spec is tried at once, and so is everything when the time has come.
func (b *backoff) begin(spec string, now time.Time) *backoff {
	switch {
	case b == nil || b.spec != spec:
		return &backoff{spec: spec, held: map[string]answer{}}
	case !now.Before(b.until):
		b.held, b.failed = map[string]answer{}, false
	}
	return b
}

// end returns the time after which everything that has failed is tried again; 0 if nothing has.
func (b *backoff) end(now time.Time) time.Duration {
	switch {
	case len(b.held) == 0 && !b.failed:
		b.failures = 0
		return 0
	case !now.Before(b.until):
		b.until = now.Add(min(minRetry<<min(b.failures, 20), maxRetry))
		b.failures++
	}
	return b.until.Sub(now)
}

// apply gives a step the answer to its patch, if the patch has failed before.
func (b *backoff) apply(s *step) (held bool) {
	before, held := b.held[s.claim]
	if held {
		s.phase, s.message = before.phase, before.message
	}
	return held
}

func (b *backoff) hold(s *step) { b.held[s.claim] = answer{phase: s.phase, message: s.message} }
