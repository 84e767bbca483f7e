// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	nrilog "github.com/containerd/nri/pkg/log"
)

// routeLog makes NRI, both its runtime and its plugin side, log to slog's default logger. NRI has one logger for the
// whole process, without a lock, so routeLog sets it once.
var routeLog = sync.OnceFunc(func() { nrilog.Set(logger{}) })

// logger passes NRI's log messages to slog. NRI logs connections at info level. They are passed on at debug level.
type logger struct{}

func (logger) Debugf(ctx context.Context, format string, args ...any) {
	slog.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (logger) Infof(ctx context.Context, format string, args ...any) {
	slog.DebugContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (logger) Warnf(ctx context.Context, format string, args ...any) {
	slog.WarnContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}

func (logger) Errorf(ctx context.Context, format string, args ...any) {
	slog.ErrorContext(ctx, fmt.Sprintf(format, args...), "from", "nri")
}
