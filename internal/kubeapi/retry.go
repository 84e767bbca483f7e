// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
)

// The delay after the first failure is a random time between 0 and minStep. The upper limit doubles after each
// further failure, up to maxStep. The delays begin at 0, so that the retries of nodes that failed at the same time
// are spread over the whole range.
const (
	minStep = time.Second
	maxStep = time.Minute
)

// ErrBreakerOpen is returned if a request was not made because the Breaker is open.
var ErrBreakerOpen = errors.New("circuit breaker is open, because earlier requests to the API server failed")

// Retry computes when a failed operation may be tried again. The zero value allows an attempt at once. Retry is not
// safe for concurrent use.
type Retry struct {
	failures int
	next     time.Time
}

// Wait returns the time until the next attempt; 0 means now.
func (r *Retry) Wait() time.Duration { return max(time.Until(r.next), 0) }

// Failed postpones the next attempt. The delay grows with the number of failures in a row.
func (r *Retry) Failed(err error) {
	r.next = time.Now().Add(delay(err, r.failures, rand.Float64()))
	r.failures++
}

// Reset allows an attempt at once, and resets the number of failures.
func (r *Retry) Reset() { *r = Retry{} }

// delay returns the time to wait after err: a random part of a step, plus the time that the server requests. The step
// begins at minStep, and doubles with each consecutive failure up to maxStep. If an administrator has to fix the error,
// the step is always maxStep. `random` is at least 0 and less than 1.
func delay(err error, failures int, random float64) time.Duration {
	step := maxStep
	if !needsPerson(err) && failures < 10 {
		step = min(minStep<<failures, maxStep)
	}
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds)*time.Second + time.Duration(random*float64(step))
}

func needsPerson(err error) bool {
	var problem *Problem
	if errors.As(err, &problem) {
		return true
	}

	switch OutcomeOf(err) {
	case Forbidden, Unauthorized, NoSuchKind, Invalid:
		return true
	}
	return false
}

// Breaker is a rate limit and a circuit breaker for the requests of one node. It opens when the API server cannot serve
// any request. Backoffs of single objects would not be enough, because all objects of a node together could still use
// the whole rate limit. Breaker is safe for concurrent use.
type Breaker struct {
	limit flowcontrol.RateLimiter

	mu    sync.Mutex // guards retry
	retry Retry
}

// NewBreaker returns a closed breaker.
func NewBreaker(requestsPerSecond float32, burst int) *Breaker {
	return &Breaker{limit: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, burst)}
}

// Wait returns how long the breaker stays open. It returns 0 if the breaker is closed.
func (b *Breaker) Wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retry.Wait()
}

// Do waits for the rate limit, makes the request and returns the error of the request. While the breaker is open, Do
// makes no request and returns ErrBreakerOpen.
func (b *Breaker) Do(ctx context.Context, request func() error) error {
	if err := b.limit.Wait(ctx); err != nil {
		return err
	}
	if b.Wait() > 0 {
		return ErrBreakerOpen
	}

	err := request()
	b.record(err)
	return err
}

func (b *Breaker) record(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.retry.Wait() > 0: // another request opened the breaker while this request ran
	case ServerFailed(err):
		b.retry.Failed(err)
	default:
		b.retry.Reset()
	}
}

// ServerFailed reports whether an error means that other requests would fail too, because the server is unreachable, is
// overloaded, or rejects the credentials.
func ServerFailed(err error) bool {
	switch OutcomeOf(err) {
	case Unavailable, TooMany, Unauthorized:
		return true
	}
	return false
}

// Refused reports whether the API server answered that it does not accept a request. The code of the answer does not matter, because a
// webhook can choose it.
func Refused(err error) bool { return StatusCode(err) > 0 && !ServerFailed(err) }

// Work reconciles the keys of a queue until the queue shuts down. The function `reconcile` returns the time after which
// the key must be reconciled again. If this time is 0, the key is not reconciled before it is enqueued again.
func Work[K comparable](ctx context.Context, queue workqueue.TypedDelayingInterface[K], reconcile func(context.Context, K) time.Duration) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if again := reconcile(ctx, key); again > 0 {
			queue.AddAfter(key, again)
		}
		queue.Done(key)
	}
}
