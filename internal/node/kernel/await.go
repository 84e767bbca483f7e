// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/stack"
)

// hookTime limits how long a hook waits for work on which its result does not depend (see Briefly). The limit is short,
// because the runtime waits for the hook.
const hookTime = 200 * time.Millisecond

// Await calls the function `do` and returns its result. A system call that is blocked in the kernel cannot be
// interrupted. If `ctx` ends before `do` returns, Await therefore returns an error, and `do` continues in its own
// goroutine. Until `do` has returned, Await refuses another run of the same call. The function `what` describes the
// call for error messages. Await calls `what` only if `ctx` ends before `do` returns.
func Await[T any](ctx context.Context, guard *Guard, call Call, what func() string, do func() (T, error)) (answer T, err error) {
	return AwaitOn(ctx, nil, guard, call, what, do)
}

// AwaitOn works like Await. If `worker` is not nil, the worker makes the call. If the call does not return in time, the
// goroutine of the worker ends with the call.
func AwaitOn[T any](ctx context.Context, worker *Worker, guard *Guard, call Call, what func() string, do func() (T, error)) (answer T, err error) {
	if err := guard.MayCall(call); err != nil {
		return answer, err
	}
	if worker == nil {
		worker = &Worker{}
		defer worker.End()
	}
	done := make(chan func() (T, error), 1)
	worker.begin(func() { done <- outcome(do) })

	select {
	case result := <-done:
		return result()
	case <-ctx.Done():
	}
	select {
	case result := <-done: // the call returned at the same time as ctx ended
		return result()
	default:
	}

	worker.End()
	guard.block(call, what())
	go func() {
		_, _ = (<-done)()
		guard.unblock(call)
	}()
	return answer, context.Cause(ctx)
}

// Worker makes calls one after another in a goroutine of its own. For many short calls, this is faster than a goroutine for each call, whose
// stack would have to grow again. The zero Worker is ready, and has no goroutine yet. A Worker is not safe for concurrent use.
type Worker struct{ calls chan func() }

func (w *Worker) begin(call func()) {
	if w.calls == nil {
		calls := make(chan func(), 1)
		w.calls = calls
		go func() {
			stack.Grow()
			for call := range calls {
				call()
			}
		}()
	}
	w.calls <- call
}

// End ends the goroutine as soon as its present call returns. The next call begins another goroutine.
func (w *Worker) End() {
	if w.calls != nil {
		close(w.calls)
		w.calls = nil
	}
}

// outcome calls the function `do`, and returns a function with the same outcome: it returns the results of `do`, or
// panics if `do` panicked.
func outcome[T any](do func() (T, error)) (end func() (T, error)) {
	defer func() {
		if cause := recover(); cause != nil {
			end = func() (T, error) { panic(cause) }
		}
	}()
	answer, err := do()
	return func() (T, error) { return answer, err }
}

// Briefly calls the function `do` in a goroutine of its own, and waits no longer than 0.2 s for the function to return.
// Hooks use Briefly for work on which their result does not depend, e.g. monitoring. If the kernel takes longer, the
// hook continues, and the work ends later.
func Briefly(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(hookTime):
	}
}
