// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"path"
	"sync"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// maxReportingUsers is the maximum number of users whose limits are kept. Without it, a process could use up memory by
// changing its user ID.
const maxReportingUsers = 64

// readLimits limits the requests on the read-only socket. Each user has a limit of its own for ReportEnforcement, so that a vendor's
// program and the publisher do not use up each other's requests.
type readLimits struct {
	reads *rate.Limiter

	mu      sync.Mutex // guards reports
	reports map[uint32]*rate.Limiter
}

func newReadLimits() *readLimits {
	return &readLimits{reads: rate.NewLimiter(readRequestsPerSecond, readRequestBurst), reports: map[uint32]*rate.Limiter{}}
}

// allow refuses requests that exceed their limit, before they use a goroutine.
func (l *readLimits) allow(ctx context.Context, info *tap.Info) (context.Context, error) {
	if path.Base(info.FullMethodName) == "ReportEnforcement" {
		if !l.reportsOf(ctx).Allow() {
			return nil, status.Errorf(codes.ResourceExhausted,
				"the read-only socket of the node API accepts at most %d reports of a user a second; call ReportEnforcement again later", reportsPerSecond)
		}
		return ctx, nil
	}
	if !l.reads.Allow() {
		return nil, status.Errorf(codes.ResourceExhausted,
			"the read-only socket of the node API accepts at most %d requests a second; use Watch and WatchAssignments to follow changes", readRequestsPerSecond)
	}
	return ctx, nil
}

// reportsOf returns the limit of the user that sends a request.
func (l *readLimits) reportsOf(ctx context.Context) *rate.Limiter {
	client, _ := clientOf(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, known := l.reports[client.uid]
	if !known {
		if len(l.reports) == maxReportingUsers {
			clear(l.reports)
		}
		limit = rate.NewLimiter(reportsPerSecond, reportBurst)
		l.reports[client.uid] = limit
	}
	return limit
}
