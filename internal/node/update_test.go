// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/api/qos"
	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
)

func TestUpdateChangesClassesThroughRuntimeAndBackend(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", nil), container("c1"))
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold", disk: "fast"})
	f.wantClass(t, "c1", cache, "gold/update")
	f.wantClass(t, "c1", disk, "fast/update")
	if f.unified["c1"]["test.class"] == "" {
		t.Error("the runtime did not get the values of the class")
	}
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/disk=slow")), container("c1"))
	before := f.Assignments()
	f.backends[disk].Fail("enforce fast", errors.New("no such device"))
	err := f.Update(t.Context(), ownerA, map[string]string{cache: "gold", disk: "fast"})
	if err == nil || !strings.Contains(err.Error(), "no such device") {
		t.Fatalf("error is %v, want the error of the kernel", err)
	}

	if diff := cmp.Diff(before, f.Assignments()); diff != "" {
		t.Errorf("state differs after a failed update (-before +after):\n%s", diff)
	}

	f.wantClass(t, "c1", cache, "bronze/default")
	if _, err := f.run(t, pod("b", requesting("test.example/cache=gold")), container("c2")); err != nil {
		t.Errorf("the slot of the failed update is not free: %v", err)
	}
}

func TestAFailedUpdateIsNotMadeAfterARestart(t *testing.T) {
	f := newFixture(t)
	p := pod("a", nil)
	c := f.mustRun(t, p, container("c1"))
	f.backends[disk].Fail("enforce fast", errors.New("no such device"))
	if err := f.Update(t.Context(), ownerA, map[string]string{disk: "fast"}); err == nil {
		t.Fatal("no error")
	}
	f.restart(t)
	f.backends[disk].Fail("enforce fast", nil)
	f.mustConfigure(t, files)
	f.Synchronize([]classes.Holder{p}, []state.Existing{{Holder: in(p, c)}})
	f.Reconcile(t.Context())
	f.wantClass(t, "c1", disk, "/")
}

// lateRuntime carries out each request after a delay, and then answers it. It carries out the request even if the
// plugin no longer waits.
type lateRuntime struct {
	after time.Duration
	busy  atomic.Bool
	set   sync.Map
}

func (r *lateRuntime) SetUnified(ctx context.Context, _ string, unified map[string]string) error {
	if r.busy.Swap(true) {
		<-ctx.Done()
		return state.ErrRuntimeBusy
	}

	done := make(chan struct{})
	time.AfterFunc(r.after, func() {
		r.set.Store("test.class", unified["test.class"])
		r.busy.Store(false)
		close(done)
	})

	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return state.ErrUnanswered
	}
}

// late runs a test with a lateRuntime whose delay is the parameter `after`. The test has a container, "c1", in the given
// class of the resource disk.
func late(t *testing.T, class string, after time.Duration, test func(t *testing.T, f *fixture, runtime *lateRuntime)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		runtime := &lateRuntime{after: after}
		f.Connected(runtime, state.RuntimeInfo{})
		f.Synchronize(nil, nil)
		f.mustRun(t, pod("a", requesting("test.example/disk="+class)), container("c1"))
		test(t, f, runtime)
		<-time.After(after) // the runtime carries out the last request within this time
	})
}

// TestWithoutTheRuntimeNoUpdateSucceeds updates a container to the class that it has, and a container that the plugin does not know.
// The runtime may have replaced or created them since the plugin was last connected.
func TestWithoutTheRuntimeNoUpdateSucceeds(t *testing.T) {
	f := newFixture(t)
	f.mustRun(t, pod("a", requesting("test.example/cache=silver")), container("c1"))
	f.Disconnected()
	for _, owner := range []qos.Subject{ownerA, {PodUID: "unknown", Container: "main"}} {
		if err := f.Update(t.Context(), owner, map[string]string{cache: "silver"}); !errors.Is(err, state.ErrNotConnected) {
			t.Errorf("the update of %s returned %v, want ErrNotConnected", owner, err)
		}
	}
}

func TestAnUpdateWaitsForASlowRuntime(t *testing.T) {
	late(t, "slow", 15*time.Second, func(t *testing.T, f *fixture, _ *lateRuntime) {
		f.mustUpdate(t, ownerA, map[string]string{disk: "fast"})
		f.wantClass(t, "c1", disk, "fast/update")
	})
}

// TestAnUpdateThatTheRuntimeMakesTooLateIsUndone uses a runtime that makes the change after the update has returned an
// error. Repair then restores the former class.
func TestAnUpdateThatTheRuntimeMakesTooLateIsUndone(t *testing.T) {
	for _, class := range []string{"slow", classes.SystemDefault} {
		late(t, class, 90*time.Second, func(t *testing.T, f *fixture, runtime *lateRuntime) {
			err := f.Update(t.Context(), ownerA, map[string]string{disk: "fast"})
			const want = "may still make the change; if the runtime makes the change, qos-nri-plugin restores the previous class; try again"
			if !errors.Is(err, state.ErrUnanswered) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "undo") {
				t.Errorf("error is %v, want ErrUnanswered without an undo", err)
			}

			f.wantClass(t, "c1", disk, class+"/pod")
			if err := f.Update(t.Context(), ownerA, map[string]string{disk: "fast"}); !errors.Is(err, state.ErrRuntimeBusy) {
				t.Errorf("another update returned %v, want ErrRuntimeBusy", err)
			}

			f.Repair(t.Context())
			if used := nodetest.InUse(f.Status(), disk, "fast"); used != 1 {
				t.Errorf("%d slots are in use while the runtime may make the change, want 1", used)
			}

			<-time.After(runtime.after)
			runtime.after = 0 // from here on, the runtime answers at once
			f.Repair(t.Context())
			if stored, _ := runtime.set.Load("test.class"); stored != class {
				t.Errorf("the runtime stores %v, want %q", stored, class)
			}

			if used := nodetest.InUse(f.Status(), disk, "fast"); used != 0 {
				t.Errorf("%d slots are in use, want none", used)
			}
		})
	}
}

// interrupted calls a function before each write of the checkpoint.
type interrupted struct {
	state.Changes
	by func()
}

func (i interrupted) Set(id string, changed []classes.Assignment) error {
	i.by()
	return i.Changes.Set(id, changed)
}

// TestASynchronizationDuringAChangeDoesNotUndoIt simulates a runtime that reconnects before the change is saved.
func TestASynchronizationDuringAChangeDoesNotUndoIt(t *testing.T) {
	f := newFixture(t)
	var exist []state.Existing
	f.restart(t, func(o *node.Options) { o.Changes = interrupted{o.Changes, func() { f.Synchronize(nil, exist) }} })
	f.mustConfigure(t, files)
	f.Synchronize(nil, nil)
	p := pod("a", requesting("test.example/cache=silver"))
	exist = []state.Existing{running(p, f.mustRun(t, p, container("c-a")))}
	f.mustUpdate(t, ownerA, map[string]string{cache: "gold"})
	f.Reconcile(t.Context())
	f.wantClass(t, "c-a", cache, "gold/update")
}
