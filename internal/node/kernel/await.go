// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"time"
)

// hookTime limits how long a hook waits for work on which its result does not depend (see Briefly). The limit is short,
// because the runtime waits for the hook.
const hookTime = 200 * time.Millisecond

// Await calls the function `do` and returns its result. A system call that is blocked in the kernel cannot be interrupted. If ctx ends
// before do returns, Await therefore returns an error, and do continues in its own goroutine. Until `do` has returned,
// Await refuses another run of the same call. The function `what` describes the call for error messages. Await calls this
// function only if ctx ends before do returns.
func Await[T any](ctx context.Context, guard *Guard, call Call, what func() string, do func() (T, error)) (answer T, err error) {
	if err := guard.MayCall(call); err != nil {
		return answer, err
	}
	done := make(chan func() (T, error), 1)
	go func() { done <- outcome(do) }()

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

	guard.block(call, what())
	go func() {
		_, _ = (<-done)()
		guard.unblock(call)
	}()
	return answer, context.Cause(ctx)
}

// outcome calls the function `do`, and returns a function that has the same outcome: the returned function returns the
// results of do, or panics if do panicked.
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
