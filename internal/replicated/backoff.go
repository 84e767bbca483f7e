// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import "time"

// MinRetry is the delay after the first failure. A write that the API server refuses is tried again, because a quota
// may be raised at any time.
const MinRetry = time.Second

// MaxRetry is the delay after many failures.
const MaxRetry = 5 * time.Minute

// Backoff has the failed writes for one key of a queue. They are not repeated before the end of a delay, even if an
// event enqueues the key earlier. A is the type of the answer to a failed write.
type Backoff[A any] struct {
	spec     string // identifies what is requested
	failures int
	until    time.Time
	due      bool         // failed writes may be repeated in this reconcile
	answers  map[string]A // by the write, as passed to Fail
}

// Begin returns the backoff for a reconcile. If the spec is new, or if the delay is over, every write may be tried.
func (b *Backoff[A]) Begin(spec string, now time.Time) *Backoff[A] {
	if b == nil || b.spec != spec {
		return &Backoff[A]{spec: spec, due: true, answers: map[string]A{}}
	}
	if b.due = !now.Before(b.until); b.due {
		clear(b.answers)
	}
	return b
}

// End returns how long to wait until the failed writes are tried again, or 0 if no write has failed.
func (b *Backoff[A]) End(now time.Time) time.Duration {
	switch {
	case len(b.answers) == 0:
		b.failures = 0
		return 0
	case b.due:
		b.until = now.Add(min(MinRetry<<min(b.failures, 20), MaxRetry))
		b.failures++
	}
	return max(b.until.Sub(now), 1) // the delay may have ended since Begin
}

// Fail records the answer to a write that has failed.
func (b *Backoff[A]) Fail(written string, answer A) { b.answers[written] = answer }

// Failed returns the answer to a write that has failed and may not be repeated yet.
func (b *Backoff[A]) Failed(written string) (answer A, failed bool) {
	answer, failed = b.answers[written]
	return answer, failed
}

// First reports whether no write had failed before this reconcile.
func (b *Backoff[A]) First() bool { return b.failures == 0 }
