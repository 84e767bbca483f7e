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

// The delay after the first failure is random, from 0 to minStep. After the next failure it is from 0 to twice that, and so on up
// to maxStep. The full range spreads the retries of nodes that failed together.
const (
	minStep = time.Second
	maxStep = time.Minute
)

// ErrBreakerOpen is returned for a request that was not made because its Breaker is open.
var ErrBreakerOpen = errors.New("circuit breaker is open: the API server failed before")

// Retry computes when a failed operation may be tried again. The zero value allows an attempt at once. It is not safe for
// concurrent use.
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

// Reset allows an attempt at once and forgets the failures.
func (r *Retry) Reset() { *r = Retry{} }

// delay returns the wait after err, which followed this number of failures; random is from [0, 1). The delay that the server
// requests is added. An error that an administrator has to repair gets the longest step at once.
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

// Breaker is a rate limit and a circuit breaker for the requests of one node. It opens when the API server cannot serve any
// request: objects with separate backoffs would still use the whole rate limit of each node. It is safe for concurrent use.
type Breaker struct {
	limit flowcontrol.RateLimiter

	mu    sync.Mutex // guards retry
	retry Retry
}

// NewBreaker makes a closed breaker.
func NewBreaker(requestsPerSecond float32, burst int) *Breaker {
	return &Breaker{limit: flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, burst)}
}

// Wait returns how long the breaker stays open; 0 means that it is closed.
func (b *Breaker) Wait() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.retry.Wait()
}

// Do waits for the rate limit, makes a request and returns its error. While the breaker is open it returns ErrBreakerOpen.
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
	case b.retry.Wait() > 0: // the request began before another one opened the breaker
	case ServerFailed(err):
		b.retry.Failed(err)
	default:
		b.retry.Reset()
	}
}

// ServerFailed reports whether other requests would fail, too: the server is away or overloaded, or rejects the credentials.
func ServerFailed(err error) bool {
	switch OutcomeOf(err) {
	case Unavailable, TooMany, Unauthorized:
		return true
	}
	return false
}

// Work reconciles the keys of a queue until its shutdown. reconcile returns when to reconcile the key again; 0 means when it is
// enqueued again.
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
