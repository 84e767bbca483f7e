// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
)

// TestAFailingCleanUpIsLoggedOncePerSeriesOfFailures makes the clean-up fail for ten minutes, succeed for ten minutes, and then fail again.
func TestAFailingCleanUpIsLoggedOncePerSeriesOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, backend := newFiles(t)
		f.write(t, oneClass)
		f.load(t.Context())
		var log strings.Builder
		a := &Agent{log: slog.New(slog.NewTextHandler(&log, nil))}
		n := f.node
		n.Connected(nil, state.RuntimeInfo{})
		n.Synchronize(nil, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.releaseDrained(ctx, n) }()
		for _, err := range []error{errors.New("read-only file system"), nil, errors.New("read-only file system")} {
			backend.Fail("release", err)
			<-time.After(10 * time.Minute)
		}

		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}

		if got := strings.Count(log.String(), "read-only file system"); got != 2 {
			t.Errorf("%d lines of the log have the error, want 2:\n%s", got, log.String())
		}
	})
}
