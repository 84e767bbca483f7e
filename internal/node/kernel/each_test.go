// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
)

var errLate = errors.New("late")

// series makes three calls, each of which may take a second, and records their outcomes. The result of a call is ten times its
// number.
type series struct {
	guard    *kernel.Guard
	worker   kernel.Worker
	outcomes []string
}

func newSeries() *series { return &series{guard: kernel.New(time.Now, func() {})} }

func (s *series) run(ctx context.Context, do func(ctx context.Context, i int)) {
	kernel.Calls[int]{
		Guard: s.guard, Limit: time.Second,
		Call: func(i int) kernel.Call { return kernel.Call{HolderID: fmt.Sprint(i)} },
		What: func(i int) string { return fmt.Sprint("call ", i) },
		Do: func(ctx context.Context, i int) (int, error) {
			do(ctx, i)
			return 10 * i, nil
		},
		Then: func(i, answer int, err error) {
			s.outcomes = append(s.outcomes, fmt.Sprintf("call %d: result %d, error %v", i, answer, err))
		},
	}.Each(ctx, &s.worker, 3, errLate)
	s.worker.End()
}

func (s *series) want(t *testing.T, outcomes ...string) {
	t.Helper()
	if diff := cmp.Diff(outcomes, s.outcomes); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestEachCallOfASeriesHasItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeries()
		// All calls together take longer than one may.
		s.run(t.Context(), func(context.Context, int) { <-time.After(900 * time.Millisecond) })
		s.want(t, "call 0: result 0, error <nil>", "call 1: result 10, error <nil>", "call 2: result 20, error <nil>")
	})
}

func TestTheOtherCallsOfASeriesAreMadeAlthoughOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newSeries(), make(chan struct{})
		hang := func(ctx context.Context, i int) {
			if i == 1 {
				<-ctx.Done()
				<-release
			}
		}
		s.run(t.Context(), hang)
		s.want(t, "call 0: result 0, error <nil>", "call 1: result 0, error late", "call 2: result 20, error <nil>")
		if got := s.guard.BlockedCalls(); len(got) != 1 || got[0].What != "call 1" {
			t.Errorf("blocked calls: %v, want call 1", got)
		}

		close(release)
		synctest.Wait()
		s.want(t, "call 0: result 0, error <nil>", "call 1: result 0, error late", "call 2: result 20, error <nil>")
		if got := s.guard.BlockedCalls(); len(got) != 0 {
			t.Errorf("blocked calls after the kernel has answered: %v", got)
		}
	})
}

func TestACallThatIsBlockedIsNotMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := newSeries(), make(chan struct{})
		s.run(t.Context(), func(_ context.Context, i int) {
			if i == 2 {
				<-release
			}
		})
		s.outcomes = nil
		s.run(t.Context(), func(_ context.Context, i int) {
			if i == 2 {
				t.Error("the blocked call was made again")
			}
		})
		if len(s.outcomes) != 3 {
			t.Errorf("outcomes: %v, want one for each call", s.outcomes)
		}
		close(release)
	})
}

func TestASeriesMakesNoCallAfterItsContextHasEnded(t *testing.T) {
	s := newSeries()
	ctx, cancel := context.WithCancel(t.Context())
	s.run(ctx, func(_ context.Context, i int) {
		if i > 0 {
			t.Errorf("call %d was made", i)
		}
		cancel()
	})
	s.want(t, "call 0: result 0, error <nil>", "call 1: result 0, error context canceled", "call 2: result 0, error context canceled")
}

func TestAPanicInACallReachesTheCallerOfTheSeries(t *testing.T) {
	defer func() {
		if cause := recover(); cause != "broken" {
			t.Errorf("recovered %v, want the panic of the call", cause)
		}
	}()
	newSeries().run(t.Context(), func(context.Context, int) { panic("broken") })
}
