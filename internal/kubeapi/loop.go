// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// runTimeout is how long one run of a Loop's work may take.
const runTimeout = 30 * time.Second

// ErrNotNow is what a Loop's work returns when it could not even try: that is neither a failure nor an end of failures, and it runs again
// when it is triggered.
var ErrNotNow = errors.New("not now")

// Loop runs a piece of work whenever it was triggered, which may be much more often than it is worth running.
type Loop struct {
	options LoopOptions
	trigger chan struct{}
	random  func() float64
}

// LoopOptions say what a Loop does.
type LoopOptions struct {
	// What says in the log what the work does, e.g. "write NodeQOSResources worker-1".
	What string
	// Work is the work: level-triggered, and good to repeat. Its context ends after half a minute. It is never run twice at a time.
	Work func(ctx context.Context) error
	// Gather is how long the first trigger after quiet waits for more of them.
	Gather time.Duration
	// Interval is the shortest time from the end of a run to the next one's begin.
	Interval time.Duration
	Log      *slog.Logger
}

// NewLoop makes a loop. It starts nothing.
func NewLoop(options LoopOptions) *Loop {
	return &Loop{options: options, trigger: make(chan struct{}, 1), random: rand.Float64}
}

// Trigger asks for a run that begins after now. It never blocks.
func (l *Loop) Trigger() {
	select {
	case l.trigger <- struct{}{}:
	default:
	}
}

// Run runs the work after each trigger until ctx ends, and again after a failure without one, by Backoff. A trigger never shortens that
// wait. The log has a line when the outcome is another than before.
func (l *Loop) Run(ctx context.Context) error {
	report := Report{What: l.options.What, Log: l.options.Log}
	var next time.Time // when the work may run again
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.trigger:
		}
		pause.For(ctx, max(l.options.Gather, time.Until(next)))
		l.untilDone(ctx, &report)
		next = time.Now().Add(l.options.Interval)
	}
}

// untilDone runs the work until it succeeds.
func (l *Loop) untilDone(ctx context.Context, report *Report) {
	var backoff Backoff
	for ctx.Err() == nil {
		l.forget()
		err := l.once(ctx)
		if ctx.Err() != nil || errors.Is(err, ErrNotNow) {
			return
		}
		report.Tell(err)
		if err == nil {
			return
		}
		pause.For(ctx, backoff.Next(err, l.random()))
	}
}

// forget takes a trigger that the run that begins now answers.
func (l *Loop) forget() {
	select {
	case <-l.trigger:
	default:
	}
}

func (l *Loop) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	return l.options.Work(ctx)
}
