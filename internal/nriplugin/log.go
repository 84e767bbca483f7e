// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"fmt"
	"log/slog"
)

// logger is the logger for the NRI library. It logs the library's messages of level info at level debug.
type logger struct{ log *slog.Logger }

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelDebug, format, args)
}
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelDebug, format, args)
}
func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelWarn, format, args)
}
func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.put(ctx, slog.LevelError, format, args)
}

func (l logger) put(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, fmt.Sprintf(format, args...), "library", "nri")
	}
}
