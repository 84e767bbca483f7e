// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
)

// ErrBreakerOpen is returned for a request that was not made because its Breaker is open.
var ErrBreakerOpen = errors.New("circuit breaker is open: the API server could not answer before")

// Retry is when something that failed may be tried again. The zero value allows a try at once. It is not safe for concurrent use.
type Retry struct {
	backoff Backoff
	next    time.Time
}

// Wait returns the time until the next try; 0 means now.
func (r *Retry) Wait() time.Duration { return max(time.Until(r.next), 0) }

// Failed postpones the next try, by Backoff.
func (r *Retry) Failed(err error) { r.next = time.Now().Add(r.backoff.Next(err, rand.Float64())) }

// Reset allows a try at once and forgets the failures.
func (r *Retry) Reset() { *r = Retry{} }

// Breaker is a rate limit and a circuit breaker for the requests of one node. It opens when the API server cannot answer anybody: objects
// that back off one by one would still use the whole rate limit of each node. It is safe for concurrent use.
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

// ServerFailed reports whether any other request would have failed likewise: the server is away or overloaded, or rejects the credentials.
func ServerFailed(err error) bool {
	switch OutcomeOf(err) {
	case Unavailable, TooMany, Unauthorized:
		return true
	}
	return false
}

// Work reconciles the keys of a queue until its shutdown. reconcile returns when to reconcile the key again; 0 means not before it is
// enqueued.
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
