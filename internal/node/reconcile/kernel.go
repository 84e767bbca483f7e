// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// The reconciler waits for the kernel and the runtime no longer than these times. It then continues with other containers and
// resources.
const (
	// observeTime limits a call that reads the class of one container or pod, or moves the threads of one class.
	observeTime = 2 * time.Second
	// changeTime limits each call into the kernel that observeTime does not limit. It is long enough for a node with
	// little free CPU time.
	changeTime = 10 * time.Second
	// roundTime limits a call to the runtime in a run of Repair or Reconcile. The next run repeats the call.
	roundTime = 5 * time.Second
	// updateTime limits a call to the runtime for a change that a client has requested. The runtime answers only after it has finished the
	// creation of other containers, which takes seconds on a slow node. Clients wait at least 10 s longer, because the kernel must answer too.
	updateTime = 20 * time.Second
)

// await works like kernel.Await, but waits no longer than the parameter `limit`. If ctx ends earlier, await cancels the context of
// the function `do`. It still waits for this function until the limit, so that no change is abandoned half-way.
func await[T any](
	ctx context.Context, f *enforcer, limit time.Duration, call kernel.Call, what func() string, do func(context.Context) (T, error),
) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := &lateError{limit}
	waiting, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, late)
	defer stop()

	answer, err := kernel.AwaitOn(waiting, &f.worker, f.guard, call, what, func() (T, error) { return do(ctx) })
	if errors.Is(err, late) {
		f.logLate(what(), limit)
	}
	return answer, err
}

func (f *enforcer) logLate(call string, limit time.Duration) {
	f.log.Warn("the kernel does not answer; continuing without its answer", "call", call, "after", limit)
}

// lateError is the error of a call into the kernel that took longer than the limit. Its text is made only when it is needed.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("%v; blocked for %s", kernel.ErrHangs, e.limit)
}
func (e *lateError) Unwrap() error { return kernel.ErrHangs }

// awaitResource calls the function `do` for a resource as a whole, not for one container or class. If an earlier such call
// for the same resource is still blocked, awaitResource returns an error.
func (f *enforcer) awaitResource(ctx context.Context, resource, what string, do func(context.Context) error) error {
	call := kernel.Call{Resource: resource}
	named := func() string { return what + " " + resource }
	_, err := await(ctx, f, changeTime, call, named, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, do(ctx)
	})
	return err
}

func (f *enforcer) enforce(ctx context.Context, h classes.Holder, steps []Step) error {
	for _, s := range steps {
		call := kernel.Call{Resource: s.Resource, HolderID: h.ID}
		what := func() string { return fmt.Sprintf("move %s to class %q of %s", h, s.To, s.Resource) }
		_, err := await(ctx, f, changeTime, call, what, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, Enforce(ctx, f.store, h, []Step{s})
		})
		switch {
		case errors.Is(err, kernel.ErrHangs):
			return s.errorf(err)
		case err != nil:
			return err
		}
	}
	return nil
}

// moveCall is MoveThreads or MoveNewThreads.
type moveCall func(mover classes.ThreadMover, ctx context.Context, class string, targets []classes.Holder) ([]string, error)

// moveGroup moves the threads of containers into their class. If the kernel does not answer, moveGroup makes one call for
// each container, so that a container for which the kernel hangs does not affect the other containers.
func (f *enforcer) moveGroup(ctx context.Context, group threadGroup, do moveCall, holders []classes.Holder) (moved []string, err error) {
	move := func(call kernel.Call, holders []classes.Holder) ([]string, error) {
		what := func() string { return fmt.Sprintf("move threads to class %q of %s", group.class, group.resource) }
		return await(ctx, f, observeTime, call, what, func(ctx context.Context) ([]string, error) {
			return do(group.mover, ctx, group.class, holders)
		})
	}

	moved, err = move(kernel.Call{Resource: group.resource, Class: group.class}, holders)
	if !errors.Is(err, kernel.ErrHangs) {
		return moved, err
	}
	for _, h := range holders {
		one, oneErr := move(kernel.Call{Resource: group.resource, HolderID: h.ID}, []classes.Holder{h})
		moved, err = append(moved, one...), errors.Join(err, oneErr)
	}
	return moved, err
}
