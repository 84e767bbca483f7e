// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bubble has parts of tests that run in a bubble of testing/synctest.
package bubble

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Pass lets time pass in the bubble, and then waits until all other goroutines of the bubble are blocked.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Log is a log in memory. It is safe for concurrent use: for the race detector, Pass orders what the test does after what
// the other goroutines have done, but not before what they do next.
type Log struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Expect checks that, since the last call, one line was logged for each text in `want`, and that the line contains the
// text.
func (l *Log) Expect(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := slices.Collect(strings.Lines(l.text.String()))
	l.text.Reset()
	if len(lines) != len(want) {
		t.Fatalf("logged %q, want %d lines", lines, len(want))
	}
	for i, text := range want {
		if !strings.Contains(lines[i], text) {
			t.Errorf("logged %s, want %s", lines[i], text)
		}
	}
}
