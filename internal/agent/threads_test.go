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
)

// follow runs a threadFollower, and returns the times of its calls: those that move all threads, and those that move only new ones
// (`fresh`). At each of the times `events`, a process joins a group. `check` is the result of each call, which takes the time check.Took.
func follow(t *testing.T, during time.Duration, events []time.Duration, check reconcile.ThreadCheck) (all, fresh []time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began, joined := time.Now(), make(chan struct{}, 1)
		ctx, stop := context.WithTimeout(t.Context(), during)
		defer stop()
		move := func(ctx context.Context, onlyNew bool) reconcile.ThreadCheck {
			calls := &all
			if onlyNew {
				calls = &fresh
			}
			*calls = append(*calls, time.Since(began))
			select {
			case <-ctx.Done():
			case <-time.After(check.Took):
			}
			return check
		}
		go (&threadFollower{joined: joined, move: move}).run(ctx)

		for _, at := range events {
			<-time.After(time.Until(began.Add(at)))
			signalTo(joined)
			synctest.Wait()
		}
		<-ctx.Done()
		synctest.Wait()
	})
	return all, fresh
}

// TestMovingThreadsTakesAtMostTwoPercentOfACPU: if each call moves threads, the limit is 20%. At the beginning, there is a credit, which
// raises these limits once by 0.2 s or 2 s. The last call may exceed the limit.
func TestMovingThreadsTakesAtMostTwoPercentOfACPU(t *testing.T) {
	const during = 10 * time.Minute
	for _, took := range []time.Duration{time.Microsecond, time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond} {
		for moved, limit := range []time.Duration{during/50 + credit/50 + took, during/5 + credit/5 + took} { // each call moves 0 or 1 threads
			all, fresh := follow(t, during, nil, reconcile.ThreadCheck{Containers: 1, Moved: moved, Took: took})
			calls := len(all) + len(fresh)
			if total := time.Duration(calls) * took; total > limit {
				t.Errorf("%d calls that move %d threads took %v of %v, want at most %v", calls, moved, total, during, limit)
			}
			// Pauses must not be much longer than necessary: there are at least 90% of the calls that the limit allows, or half of
			// those that newThreadsInterval allows if these are fewer.
			if fewest := int(min(during/newThreadsInterval/2, limit/took*9/10)); calls < fewest {
				t.Errorf("there were %d calls of %v, want at least %d", calls, took, fewest)
			}
		}
	}
}

// TestNewThreadsAreMovedSoon: calls that check all threads are seldom, and there is a call of either kind in each 2 * newThreadsInterval.
func TestNewThreadsAreMovedSoon(t *testing.T) {
	all, fresh := follow(t, time.Minute, nil, reconcile.ThreadCheck{Containers: 1, Took: 100 * time.Microsecond})
	if len(all) > len(fresh)/10 {
		t.Errorf("%d calls check all threads, and %d only new ones", len(all), len(fresh))
	}
	calls := slices.Concat(all, fresh)
	slices.Sort(calls)
	for i, at := range calls[1:] {
		if at-calls[i] > 2*newThreadsInterval {
			t.Errorf("no call between %v and %v", calls[i], at)
		}
	}
}

// TestAJoinedProcessIsMovedAtOnce has processes that join a group soon after a call, and between two calls.
func TestAJoinedProcessIsMovedAtOnce(t *testing.T) {
	events := []time.Duration{505 * time.Millisecond, 1600 * time.Millisecond}
	all, _ := follow(t, 2*time.Second, events, reconcile.ThreadCheck{Took: time.Millisecond})
	for _, at := range events {
		if !slices.Contains(all, at) {
			t.Errorf("calls after %v, want one after %v", all, at)
		}
	}
}

// TestAJoinedProcessDoesNotWaitForThePeriodicCalls has calls that take 20 ms. Because they may take 2% of a CPU, there is one
// periodic call a second when the credit is used up. The process joins its group between two of these calls.
func TestAJoinedProcessDoesNotWaitForThePeriodicCalls(t *testing.T) {
	event := 30500 * time.Millisecond
	all, _ := follow(t, time.Minute, []time.Duration{event}, reconcile.ThreadCheck{Containers: 1, Took: 20 * time.Millisecond})
	if !slices.Contains(all, event) {
		t.Errorf("calls after %v, want one after %v", all, event)
	}
}

// TestAnEventDoesNotDelayThePeriodicCheck has calls that take a minute. Each of them is followed by the longest pause, 15 s, so there are
// four calls in five minutes. The events come in the first pause.
func TestAnEventDoesNotDelayThePeriodicCheck(t *testing.T) {
	check := reconcile.ThreadCheck{Took: time.Minute}
	without, _ := follow(t, 5*time.Minute, nil, check)
	with, _ := follow(t, 5*time.Minute, []time.Duration{61 * time.Second, 62 * time.Second, 63 * time.Second}, check)
	if len(without) != 4 || len(with) < len(without) {
		t.Errorf("calls with events at %v, and without at %v; want four without events, and not fewer with them", with, without)
	}
}

// TestAProcessThatJoinsAGroupIsNoticed writes into the tasks of groups that exist before the agent, and that are made later.
func TestAProcessThatJoinsAGroupIsNoticed(t *testing.T) {
	root := t.TempDir()
	path := func(group string) string { return filepath.Join(root, "sys/fs/resctrl", group) }
	join := func(group string) {
		t.Helper()
		tasks, err := os.OpenFile(filepath.Join(path(group), "tasks"), os.O_WRONLY|os.O_CREATE, 0o600) // truncating would be a second event
		must(t, err)
		if _, err := tasks.WriteString("1\n"); err != nil {
			t.Fatal(err)
		}
		must(t, tasks.Close())
	}
	for _, group := range []string{"qos-before", "other"} {
		must(t, os.MkdirAll(path(group), 0o755))
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

	must(t, os.MkdirAll(path("qos-later"), 0o755))
	watch()
	join("qos-later")
	await("later")
}
