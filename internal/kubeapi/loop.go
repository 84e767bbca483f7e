// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
)

// runTimeout is how long one run of a Loop's work may take.
const runTimeout = 30 * time.Second

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
	// Explain makes the line for the log of an error; nil is Explain.
	Explain func(error) string
	Log     *slog.Logger
}

// NewLoop makes a loop. It starts nothing.
func NewLoop(options LoopOptions) *Loop {
	if options.Explain == nil {
		options.Explain = Explain
	}
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
	var (
		backoff Backoff
		last    error
		next    time.Time // when the work may run again
	)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.trigger:
		}
		wait(ctx, max(l.options.Gather, time.Until(next)))
		for ctx.Err() == nil {
			l.forget()
			err := l.once(ctx)
			if ctx.Err() != nil {
				break
			}
			l.tell(last, err)
			last = err
			if err == nil {
				backoff.Reset()
				break
			}
			wait(ctx, max(l.options.Interval, backoff.Next(err, l.random())))
		}
		next = time.Now().Add(l.options.Interval)
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

func (l *Loop) tell(last, err error) {
	switch {
	case same(last, err):
	case err == nil:
		l.options.Log.Info("works again", "what", l.options.What)
	default:
		l.options.Log.Warn("failed", "what", l.options.What, "problem", l.options.Explain(err))
	}
}

// same says whether a person would see no news in b after a. Most outcomes have one remedy each, while their words may differ at every try.
func same(a, b error) bool {
	outcome := OutcomeOf(a)
	return outcome == OutcomeOf(b) && (outcome != Failed || a.Error() == b.Error())
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
