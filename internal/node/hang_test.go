// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/kernel"
)

// hanging runs a test with two containers, "c-a" and "c-b", whose classes were changed to silver after their creation. The
// given operation hangs in the kernel until the test calls released.
func hanging(t *testing.T, operation string, test func(t *testing.T, f *fixture, released func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.Synchronize(nil, nil)
		f.mustRun(t, pod("a", nil), container("c-a"))
		f.mustRun(t, pod("b", nil), container("c-b"))
		ownerB := ownerA
		ownerB.PodUID = "uid-b"
		f.mustUpdate(t, ownerA, map[string]string{cache: "silver"})
		f.mustUpdate(t, ownerB, map[string]string{cache: "silver"})
		stuck := make(chan struct{})
		released := func() {
			close(stuck)
			synctest.Wait()
		}

		f.backends[cache].Stick(operation, stuck)
		test(t, f, released)
	})
}

// wantBlocked checks the number of reported blocked calls, and that their error contains the text.
func (f *fixture) wantBlocked(t *testing.T, count int, text string) {
	t.Helper()
	blocked := f.BlockedCalls()
	if len(blocked) != count {
		t.Errorf("%d calls are reported as blocked, want %d: %+v", len(blocked), count, blocked)
	}
	if err := kernel.Error(blocked); count > 0 && !strings.Contains(err.Error(), text) {
		t.Errorf("the reported error is %v; want %q in it", err, text)
	}
}

func TestAHungReadOfOneContainerStopsNothingElse(t *testing.T) {
	hanging(t, "observe c-a", func(t *testing.T, f *fixture, released func()) {
		f.backends[cache].Lose("c-b")
		for range 3 { // only the first call reads the class of c-a
			f.Repair(t.Context())
		}

		f.wantBlocked(t, 1, "read the test.example/cache class of pod ns/a container main")
		if f.backends[cache].Enforced()["c-b"] != "silver" {
			t.Error("the drift of another container was not corrected")
		}

		f.backends[cache].AddStray("c-b")
		f.MoveThreads(t.Context(), false)
		if f.backends[cache].HasStray("c-b") {
			t.Error("the threads of another container were not moved")
		}

		f.mustConfigure(t, strings.ReplaceAll(files, "capacity: 1", "capacity: 3")) // any change of the class files will do
		ownerB := ownerA
		ownerB.PodUID = "uid-b"
		f.mustUpdate(t, ownerB, map[string]string{cache: "gold"})
		f.wantClass(t, "c-b", cache, "gold/update")

		released()
		f.wantBlocked(t, 0, "")
		f.backends[cache].Lose("c-a") // Repair finds this, because the class of c-a is read again
		f.Repair(t.Context())
		f.wantClass(t, "c-a", cache, "silver/update")
	})
}

func TestWatchersAreNotifiedThatACallIsBlocked(t *testing.T) {
	hanging(t, "observe c-a", func(t *testing.T, f *fixture, released func()) {
		changed := f.Changed()
		f.Repair(t.Context())
		wantClosed(t, changed, "a call is blocked")

		changed = f.Changed()
		released()
		wantClosed(t, changed, "the call has returned")
	})
}

func wantClosed(t *testing.T, changed <-chan struct{}, why string) {
	t.Helper()
	select {
	case <-changed:
	default:
		t.Errorf("the watchers were not told that %s", why)
	}
}

func TestThreadsOfOtherContainersAreMovedWhileOneMoveHangs(t *testing.T) {
	hanging(t, "moveThreads c-a", func(t *testing.T, f *fixture, released func()) {
		f.backends[cache].AddStray("c-b")
		f.MoveThreads(t.Context(), false)
		if f.backends[cache].HasStray("c-b") {
			t.Error("the threads of another container were not moved")
		}
		f.wantBlocked(t, 2, "move threads to class \"silver\" of test.example/cache") // the call for both containers, and then the one for c-a
		released()
		f.wantBlocked(t, 0, "")
	})
}

func TestAHungChangeFailsAndIsUndoneWhenTheKernelAnswers(t *testing.T) {
	hanging(t, "enforce bronze", func(t *testing.T, f *fixture, released func()) {
		err := f.Update(t.Context(), ownerA, map[string]string{cache: "bronze"})
		if !errors.Is(err, kernel.ErrHangs) || !strings.Contains(err.Error(), "pod ns/a container main") {
			t.Errorf("error is %v, want kernel.ErrHangs and the name of the container", err)
		}
		f.wantBlocked(t, 1, `move pod ns/a container main to class "bronze" of test.example/cache`)
		if err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold"}); !errors.Is(err, kernel.ErrHangs) {
			t.Errorf("another change of the container while the first one hangs: %v", err)
		}
		released()
		f.Repair(t.Context())
		f.wantClass(t, "c-a", cache, "silver/update") // the class before the changes
	})
}

func TestClassFilesThatHangAreRefusedUntilTheKernelAnswers(t *testing.T) {
	hanging(t, "apply", func(t *testing.T, f *fixture, released func()) {
		next := strings.ReplaceAll(files, "capacity: 1", "capacity: 3")
		for range 2 {
			if err := f.configure(t, next); !errors.Is(err, kernel.ErrHangs) {
				t.Errorf("error is %v, want kernel.ErrHangs", err)
			}
		}
		f.wantBlocked(t, 1, "apply test.example/cache")          // the second attempt does not call the kernel again
		f.mustUpdate(t, ownerA, map[string]string{disk: "fast"}) // other resources are not affected
		released()
		f.mustConfigure(t, next)
	})
}

func TestAHungRepairMakesOnlyItsResourceUnavailableUntilTheKernelAnswers(t *testing.T) {
	hanging(t, "repair", func(t *testing.T, f *fixture, released func()) {
		for range 2 {
			f.Repair(t.Context())
		}
		f.wantBlocked(t, 1, "repair test.example/cache") // the second call of Repair does not call the kernel again
		if err := f.Status().Resources[0].Unavailable; err == nil || !strings.Contains(err.Error(), "the kernel does not answer") {
			t.Errorf("the resource is offered: %v", err)
		}
		f.mustUpdate(t, ownerA, map[string]string{disk: "fast"}) // other resources are available
		released()
		f.Repair(t.Context())
		if err := f.Status().Resources[0].Unavailable; err != nil {
			t.Errorf("the resource is not offered again: %v", err)
		}
	})
}

// TestAHookThatTheRuntimeNoLongerWaitsForIsReported simulates a hook that the runtime ends after a timeout.
func TestAHookThatTheRuntimeNoLongerWaitsForIsReported(t *testing.T) {
	hanging(t, "enforce gold", func(t *testing.T, f *fixture, released func()) {
		p := pod("c", requesting(cache+"=gold"))
		c, _, err := f.create(t, p, container("c-c"))
		if err != nil {
			t.Fatal(err)
		}

		enforce, err := f.StartContainer(in(p, c))
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := enforce(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want DeadlineExceeded", err)
		}

		f.wantBlocked(t, 1, "enforce the classes of pod ns/c container main")
		released()
		f.wantBlocked(t, 0, "")
	})
}
