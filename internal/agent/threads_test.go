// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/internal/node/reconcile"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// follow runs a threadFollower, and returns the times of its calls. `list` returns the container's threads. A process joins
// a group at the times `events`. `check` is the result of each call.
func follow(t *testing.T, during time.Duration, list func() int, events []time.Duration, check reconcile.ThreadCheck) (calls []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, joined := time.Now(), make(chan struct{}, 1)
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		follower := threadFollower{
			joined: joined,
			list:   func(classes.Holder) ([]int, error) { return []int{list()}, nil },
			move: func(ctx context.Context) reconcile.ThreadCheck {
				calls = append(calls, time.Since(began))
				select {
				case <-ctx.Done():
				case <-time.After(check.Took):
				}
				return check
			},
		}
		go follower.run(ctx)

		for _, at := range events {
			<-time.After(time.Until(began.Add(at)))
			signalTo(joined)
			synctest.Wait()
		}
		<-ctx.Done()
		synctest.Wait()
	})
	return calls
}

// TestMovingThreadsTakesAtMostTwoPercentOfTheTime has a container whose threads always change. If each call moves threads,
// the limit is 20%. At the beginning, there is a credit for calls of 0.2 s or 2 s.
func TestMovingThreadsTakesAtMostTwoPercentOfTheTime(t *testing.T) {
	const during = 10 * time.Minute
	for _, took := range []time.Duration{time.Microsecond, time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for moved, limit := range []time.Duration{during/50 + credit/50 + took, during/5 + credit/5 + took} {
			thread := 0
			calls := follow(t, during, func() int { thread++; return thread }, nil,
				reconcile.ThreadCheck{Containers: []classes.Holder{{ID: "changed"}}, Moved: moved, Took: took})
			if total := time.Duration(len(calls)) * took; total > limit {
				t.Errorf("%d calls that move %d threads took %v of %v, want at most %v", len(calls), moved, total, during, limit)
			}
			if fewest := int(min(during/looksInterval/2, limit/took*9/10)); len(calls) < fewest {
				t.Errorf("there were %d calls of %v, want at least %d", len(calls), took, fewest)
			}
		}
	}
}

// TestAProcessThatJoinsAContainerIsMovedSoon has a container whose threads change after 10 s.
func TestAProcessThatJoinsAContainerIsMovedSoon(t *testing.T) {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // as each test with synctest
	threads := func() int { return int(time.Since(began) / (10 * time.Second)) }
	calls := follow(t, 11*time.Second, threads, nil, reconcile.ThreadCheck{Containers: []classes.Holder{{ID: "changed"}}})
	if !slices.ContainsFunc(calls, func(at time.Duration) bool { return at >= 10*time.Second && at <= 10*time.Second+looksInterval }) {
		t.Errorf("calls after %v, want one at most %v after 10 s", calls, looksInterval)
	}
}

// TestAJoinedProcessIsMovedAtOnce has processes that join a group soon after a call, and between two calls.
func TestAJoinedProcessIsMovedAtOnce(t *testing.T) {
	events := []time.Duration{505 * time.Millisecond, 1600 * time.Millisecond}
	calls := follow(t, 2*time.Second, func() int { return 1 }, events, reconcile.ThreadCheck{Took: time.Millisecond})
	for _, at := range events {
		if !slices.Contains(calls, at) {
			t.Errorf("calls after %v, want one after %v", calls, at)
		}
	}
}

// TestAJoinedProcessDoesNotWaitForOtherContainers has a container whose threads always change, so that calls because of
// other threads must pause.
func TestAJoinedProcessDoesNotWaitForOtherContainers(t *testing.T) {
	thread, event := 0, 30500*time.Millisecond
	check := reconcile.ThreadCheck{Containers: []classes.Holder{{ID: "changed"}}, Took: 20 * time.Millisecond}
	calls := follow(t, time.Minute, func() int { thread++; return thread }, []time.Duration{event}, check)
	if !slices.Contains(calls, event) {
		t.Errorf("calls after %v, want one after %v", calls, event)
	}
}

// TestTheOtherCallsGoOnWhileALookHangs has a kernel that takes 50 s to list the threads of a container for the first time.
func TestTheOtherCallsGoOnWhileALookHangs(t *testing.T) {
	answered := false
	hang := func() int {
		if !answered {
			<-time.After(50 * time.Second)
		}
		answered = true
		return 1
	}
	event := 30100 * time.Millisecond
	calls := follow(t, time.Minute, hang, []time.Duration{event}, reconcile.ThreadCheck{Containers: []classes.Holder{{ID: "changed"}}})
	if !slices.Contains(calls, event) || len(calls) < 50 {
		t.Errorf("calls after %v, want one after %v, and others about every %v", calls, event, threadsInterval)
	}
}

// TestAnEventDoesNotDelayThePeriodicCheck has events while a call that took very long delays the next one.
func TestAnEventDoesNotDelayThePeriodicCheck(t *testing.T) {
	check := reconcile.ThreadCheck{Took: time.Minute}
	without := follow(t, 5*time.Minute, func() int { return 1 }, nil, check)
	with := follow(t, 5*time.Minute, func() int { return 1 }, []time.Duration{61 * time.Second, 62 * time.Second, 63 * time.Second}, check)
	if len(without) != 4 || len(with) < len(without) {
		t.Errorf("calls with events at %v, and without at %v", with, without)
	}
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
