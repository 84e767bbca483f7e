// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
)

// TestRepeatedEventsCauseRepairsWithPauses sends one event, or repeated events for three seconds, and checks the times
// of the repairs. An event causes repairs after 0.1 s, 1 s more and 2 s more. While events go on, there is one repair a second.
func TestRepeatedEventsCauseRepairsWithPauses(t *testing.T) {
	for name, test := range map[string]struct {
		events time.Duration
		want   []time.Duration
	}{
		"one event": {0, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 3100 * time.Millisecond}},
		// The repair at 3.1 s was planned while events went on, so it is the one after 1 s. The last repair is 2 s later.
		"repeated events for 3 s": {3 * time.Second, []time.Duration{100 * time.Millisecond, 1100 * time.Millisecond, 2100 * time.Millisecond, 3100 * time.Millisecond, 5100 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				settle := newSettler(settling())
				var repairs []time.Duration
				for time.Since(began) < 10*time.Second {
					if since := time.Since(began); since <= test.events {
						settle.begin()
					}
					select {
					case <-settle.timer.C:
						repairs = append(repairs, time.Since(began).Round(time.Millisecond))
						settle.next()
					case <-time.After(10 * time.Millisecond):
					}
				}

				if diff := cmp.Diff(test.want, repairs); diff != "" {
					t.Errorf("repairs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestStartTimesAreThoseOfTheHost: only in the PID namespace of the host, process 2 is kthreadd. Otherwise the PIDs of the runtime
// are those of other processes. The start time of a process is 0 if its stat cannot be read.
func TestStartTimesAreThoseOfTheHost(t *testing.T) {
	root := t.TempDir()
	stat := func(pid, text string) {
		dir := filepath.Join(root, "proc", pid)
		must(t, os.MkdirAll(dir, 0o755))
		must(t, os.WriteFile(filepath.Join(dir, "stat"), []byte(text), 0o600))
	}

	if processTimes(hostfs.Root(root)) != nil {
		t.Error("processTimes uses the PIDs of another PID namespace")
	}

	stat("2", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0\n")
	times := processTimes(hostfs.Root(root))
	if times == nil {
		t.Fatal("processTimes does not use the PIDs of the host")
	}

	stat("7", "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 0\n")
	stat("8", "8 (odd\n")
	for pid, want := range map[int]struct {
		At     uint64
		Exists bool
	}{7: {4711, true}, 8: {0, true}, 9: {0, false}} {
		if at, exists := times(pid); at != want.At || exists != want.Exists {
			t.Errorf("process %d: %d, %v; want %+v", pid, at, exists, want)
		}
	}
}
