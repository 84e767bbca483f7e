// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
)

// TestMovingThreadsTakesAtMostTwoPercentOfTheTime has calls without containers whose class has changed, with such a container, and
// with one that had threads to move, for which it is 20%.
func TestMovingThreadsTakesAtMostTwoPercentOfTheTime(t *testing.T) {
	for took, want := range map[time.Duration][3]time.Duration{
		0:                      {threadsInterval, movedInterval, movedInterval},
		100 * time.Microsecond: {threadsInterval, movedInterval, movedInterval},
		time.Millisecond:       {threadsInterval, 49 * time.Millisecond, movedInterval},
		20 * time.Millisecond:  {980 * time.Millisecond, 980 * time.Millisecond, 80 * time.Millisecond},
		200 * time.Millisecond: {9800 * time.Millisecond, 9800 * time.Millisecond, 800 * time.Millisecond},
		20 * time.Second:       {15 * time.Second, 15 * time.Second, 15 * time.Second},
	} {
		got := [3]time.Duration{
			untilThreads(reconcile.ThreadCheck{Took: took}),
			untilThreads(reconcile.ThreadCheck{Took: took, Containers: 1}),
			untilThreads(reconcile.ThreadCheck{Took: took, Containers: 1, Moved: 1}),
		}
		if got != want {
			t.Errorf("the pauses after a call that took %v are %v, want %v", took, got, want)
		}
	}
}

// TestAJoinedProcessIsMovedAtOnce joins two processes soon after a call, and one more 0.1 s later, while each call takes 1 ms. After a call
// that has moved a process, the next one may follow earlier. A periodic call delays no other call.
func TestAJoinedProcessIsMovedAtOnce(t *testing.T) {
	for moved, want := range [][]string{
		{"500ms", "1.001s", "1.015s", "1.065s", "1.115s", "1.616s"},
		{"500ms", "1.001s", "1.015s", "1.02s", "1.115s", "1.616s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, joined := time.Now(), make(chan struct{}, 1)
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
			defer stop()
			var calls []string
			go followThreads(ctx, joined, func(context.Context) reconcile.ThreadCheck {
				calls = append(calls, time.Since(began).String())
				<-time.After(time.Millisecond)
				return reconcile.ThreadCheck{Moved: moved, Took: time.Millisecond}
			})

			<-time.After(1015 * time.Millisecond)
			for range 2 {
				signalTo(joined)
				synctest.Wait()
			}
			<-time.After(100 * time.Millisecond)
			signalTo(joined)
			<-ctx.Done()
			synctest.Wait()

			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("calls that move %d processes (-want +got):\n%s", moved, diff)
			}
		})
	}
}

// TestAnEventDoesNotDelayThePeriodicCheck has an event after a call that an event has caused, and that took very long.
func TestAnEventDoesNotDelayThePeriodicCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, joined := time.Now(), make(chan struct{}, 1)
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		var last time.Duration
		go followThreads(ctx, joined, func(context.Context) reconcile.ThreadCheck {
			last = time.Since(began)
			return reconcile.ThreadCheck{Took: time.Minute}
		})

		for range 2 {
			<-time.After(time.Second)
			signalTo(joined)
		}
		<-ctx.Done()
		synctest.Wait()
		if want := time.Second + lastThreads; last != want {
			t.Errorf("the last call was after %v, want %v", last, want)
		}
	})
}

// TestAProcessThatJoinsAGroupIsNoticed writes into the tasks of groups that exist before the agent, and that are made later.
func TestAProcessThatJoinsAGroupIsNoticed(t *testing.T) {
	root := t.TempDir()
	path := func(group string) string { return filepath.Join(root, "sys/fs/resctrl", group) }
	join := func(group string) {
		t.Helper()
		tasks, err := os.OpenFile(filepath.Join(path(group), "tasks"), os.O_WRONLY|os.O_CREATE, 0o600) // truncating would be a second event
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tasks.WriteString("1\n"); err != nil {
			t.Fatal(err)
		}
		if err := tasks.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, group := range []string{"qos-before", "other"} {
		if err := os.MkdirAll(path(group), 0o755); err != nil {
			t.Fatal(err)
		}
		join(group)
	}

	ctx, stop := context.WithCancel(t.Context())
	group, ctx := errgroup.WithContext(ctx)
	changed, joined := make(chan struct{}, 1), make(chan string, 10)
	agent := &Agent{options: Options{HostRoot: root, RepairInterval: time.Hour}, log: slog.New(slog.DiscardHandler)}
	watch := agent.followGroups(ctx, group, changed, func(class string) { joined <- class })
	defer func() { stop(); _ = group.Wait() }()

	await := func(want string) {
		for class := range joined {
			if class == want {
				return
			}
		}
	}
	join("qos-before")
	await("before")

	if err := os.MkdirAll(path("qos-later"), 0o755); err != nil {
		t.Fatal(err)
	}
	watch()
	join("qos-later")
	await("later")
}
