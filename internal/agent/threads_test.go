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
)

func TestMovingThreadsTakesAtMostTwoPercentOfTheTime(t *testing.T) {
	for took, want := range map[time.Duration]struct{ without, with time.Duration }{
		0:                      {threadsInterval, movedInterval},
		100 * time.Microsecond: {threadsInterval, movedInterval},
		time.Millisecond:       {threadsInterval, 199 * time.Millisecond},
		10 * time.Millisecond:  {threadsInterval, threadsInterval},
		20 * time.Millisecond:  {980 * time.Millisecond, 980 * time.Millisecond},
		200 * time.Millisecond: {9800 * time.Millisecond, 9800 * time.Millisecond},
		20 * time.Second:       {15 * time.Second, 15 * time.Second},
	} {
		if without, with := untilThreads(0, took), untilThreads(1, took); without != want.without || with != want.with {
			t.Errorf("after %v: in %v without containers and in %v with one, want %v", took, without, with, want)
		}
	}
}

// TestAJoinedProcessIsMovedAtOnce joins two processes soon after a call, and one more 0.1 s later, while each call takes 1 ms.
func TestAJoinedProcessIsMovedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, joined := time.Now(), make(chan struct{}, 1)
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		var calls []string
		go followThreads(ctx, joined, func(context.Context) int {
			calls = append(calls, time.Since(began).String())
			<-time.After(time.Millisecond)
			return 0
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

		want := []string{"500ms", "1.001s", "1.051s", "1.115s", "1.616s"}
		if diff := cmp.Diff(want, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestAnEventDoesNotPostponeTheNextCall joins a process after a call that waited 20 s for another change.
func TestAnEventDoesNotPostponeTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, joined := time.Now(), make(chan struct{}, 1)
		ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
		defer stop()
		var calls []string
		go followThreads(ctx, joined, func(context.Context) int {
			calls = append(calls, time.Since(began).String())
			<-time.After(20 * time.Second)
			return 0
		})

		<-time.After(21 * time.Second)
		signalTo(joined)
		<-ctx.Done()
		synctest.Wait()

		if diff := cmp.Diff([]string{"500ms", "35.5s"}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// TestAProcessThatJoinsAGroupIsNoticed writes into the tasks of groups that exist before the agent, and that are made later.
func TestAProcessThatJoinsAGroupIsNoticed(t *testing.T) {
	root := t.TempDir()
	path := func(group string) string { return filepath.Join(root, "sys/fs/resctrl", group) }
	join := func(group string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(path(group), "tasks"), []byte("1\n"), 0o600); err != nil {
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
	changed, joined := make(chan struct{}, 1), make(chan struct{}, 1)
	agent := &Agent{options: Options{HostRoot: root, RepairInterval: time.Hour}, log: slog.New(slog.DiscardHandler)}
	watch := agent.followGroups(ctx, group, changed, joined)
	defer func() { stop(); _ = group.Wait() }()

	join("qos-before")
	<-joined

	if err := os.MkdirAll(path("qos-later"), 0o755); err != nil {
		t.Fatal(err)
	}
	watch()
	join("qos-later")
	<-joined
}
