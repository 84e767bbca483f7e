// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"log/slog"
	"testing"
)

// TestAWatcherThatHasEndedReportsNoProblem adds directories to the watcher after its end, which fsnotify refuses with
// ErrClosed. That is not logged as a problem, and no polls are needed instead.
func TestAWatcherThatHasEndedReportsNoProblem(t *testing.T) {
	log := &journal{}
	dir := newDirectory(t.TempDir(), slog.New(slog.NewTextHandler(log, nil)), func() {}, func() {})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	dir.run(ended)
	dir.watch()
	if log.String() != "" || dir.needsPoll() {
		t.Errorf("logged %q, needs a poll: %t; want neither", log, dir.needsPoll())
	}
}
