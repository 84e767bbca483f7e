// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"sync"
	"time"
)

// Calls are calls into the kernel that are made one after another. The parameter of the functions is the index of a call.
type Calls[T any] struct {
	Guard *Guard
	// Limit is how long each call may take.
	Limit time.Duration
	// Call identifies a call, and What describes it for error messages.
	Call func(i int) Call
	What func(i int) string
	Do   func(ctx context.Context, i int) (T, error)
	// Then gets the outcome of each call. It is never called twice at the same time, and never waits for anything but locks.
	Then func(i int, answer T, err error)
}

// Each makes n calls. It works like AwaitOn for each of them, but hands over to the worker only once, and again after a call that does not
// return in time: for short calls, the handover needs more CPU time than the call. It makes no more calls after ctx has ended, and gives a
// call that does not return in time the error `late`.
func (c Calls[T]) Each(ctx context.Context, worker *Worker, n int, late error) {
	for first := 0; first < n; {
		s := &series[T]{Calls: c, at: first, end: n, began: time.Now()}
		done := make(chan any, 1)
		calling, cancel := context.WithCancel(ctx)
		worker.begin(func() {
			defer func() { s.ends(done, recover()) }()
			s.run(calling)
		})

		blocked := s.wait(done)
		cancel()
		if !blocked {
			return
		}
		worker.End()
		var none T
		c.Then(s.at, none, late)
		first = s.at + 1
	}
}

// series are successive calls of one goroutine.
type series[T any] struct {
	Calls[T]
	end int

	mu    sync.Mutex // guards the fields below, and is held during calls of Then
	at    int        // the index of the present call
	began time.Time
	// blocked is true if the present call has not returned in time. The goroutine then ends with it.
	blocked bool
	// ended is true if the goroutine has ended in time.
	ended bool
}

// ends sends the cause of a panic, or nil, when the goroutine ends. If nobody waits for the call any more, ends panics with
// the cause.
func (s *series[T]) ends(done chan<- any, cause any) {
	s.mu.Lock()
	s.ended = !s.blocked
	s.mu.Unlock()
	if !s.ended && cause != nil {
		s.Guard.unblock(s.Call(s.at))
		panic(cause)
	}
	done <- cause
}

func (s *series[T]) run(ctx context.Context) {
	for at := s.at; at < s.end; at++ {
		var answer T
		err := ctx.Err()
		if err == nil {
			err = s.Guard.MayCall(s.Call(at))
		}
		if err == nil {
			answer, err = s.Do(ctx, at)
		}
		if !s.returned(answer, err) {
			return
		}
	}
}

// returned records the outcome of the present call, and begins the next one. It returns false if the call has not returned in time.
func (s *series[T]) returned(answer T, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blocked {
		s.Guard.unblock(s.Call(s.at))
		return false
	}
	s.Then(s.at, answer, err)
	s.at, s.began = s.at+1, time.Now()
	return true
}

// wait waits for the end of the goroutine, and panics if that has panicked. It returns true if a call does not return in time.
func (s *series[T]) wait(done <-chan any) (blocked bool) {
	timer := time.NewTimer(s.Limit)
	defer timer.Stop()
	for {
		select {
		case cause := <-done:
			if cause != nil {
				panic(cause)
			}
			return false
		case <-timer.C:
		}
		rest := s.rest()
		if rest <= 0 {
			return true
		}
		timer.Reset(rest)
	}
}

// rest returns the time that is left for the present call. If there is none, it records that the call is blocked.
func (s *series[T]) rest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.Limit - time.Since(s.began)
	switch {
	case s.at == s.end || s.ended:
		return s.Limit // the goroutine is about to end
	case rest <= 0:
		s.blocked = true
		s.Guard.block(s.Call(s.at), s.What(s.at))
	}
	return rest
}
