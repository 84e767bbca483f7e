// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/node/usage"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// Watch measures at an interval, lets a Judge decide, and reports the verdicts in the state of the node. It shares the
// samples of the meter with other clients.
type Watch struct {
	store    *state.Store
	meter    *usage.Meter
	interval time.Duration

	mu sync.Mutex // guards the fields below
	// judge is nil if the interval is 0.
	judge    *Judge
	verdicts map[Class]Verdict
}

// New returns a Watch that measures at an interval. It measures nothing if the interval is 0.
func New(store *state.Store, meter *usage.Meter, interval time.Duration) *Watch {
	w := &Watch{store: store, meter: meter, interval: interval}
	if interval > 0 {
		w.judge = NewJudge(interval)
	}
	return w
}

// FollowHeld judges at the interval until ctx ends. It returns at once if the interval is 0.
func (w *Watch) FollowHeld(ctx context.Context) {
	pause.Every(ctx, w.interval, func() {
		_ = w.JudgeHeld(ctx) // the next call tries again, and qos_kernel_calls_blocked reports a kernel that does not answer
	})
}

// JudgeHeld takes one sample, and reports the verdicts. It does nothing if the interval is 0.
func (w *Watch) JudgeHeld(ctx context.Context) error {
	if w.judge == nil {
		return nil
	}
	measured, err := w.meter.Usage(ctx)
	if err != nil {
		return fmt.Errorf("measure what classes use: %w", err)
	}
	sample := w.sample(measured)

	w.mu.Lock()
	defer w.mu.Unlock()
	w.verdicts = w.judge.Add(sample)
	held := map[string]map[string]classes.Condition{}
	for c, v := range w.verdicts {
		if held[c.Resource] == nil {
			held[c.Resource] = map[string]classes.Condition{}
		}
		held[c.Resource][c.Name] = v.Condition()
	}
	w.store.SetHeld(held)
	return nil
}

// HeldVerdicts returns the last verdicts, or nil if the interval is 0.
func (w *Watch) HeldVerdicts() map[Class]Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.verdicts)
}

// sample joins what was measured with what the classes promise.
func (w *Watch) sample(measured usage.Sample) Sample {
	s := Sample{Time: measured.Time}
	live, status, promisers := w.store.Live(), w.store.Status(), map[string]classes.Promiser{}
	for _, r := range status.Resources {
		resource := live.Resources[r.Name]
		promiser, is := resource.Promiser()
		if !is {
			continue
		}
		promisers[r.Name] = promiser
		for _, class := range r.Classes {
			if len(promiser.Promises(classes.Holder{}, class.Name)) > 0 {
				s.Promising = append(s.Promising, Class{r.Name, class.Name})
			}
		}
	}

	add := func(u Use, target classes.Holder) {
		promiser := promisers[u.Resource]
		if promiser == nil || u.Class == classes.SystemDefault {
			return
		}
		if u.Promises = promiser.Promises(target, u.Class); len(u.Promises) > 0 {
			s.Uses = append(s.Uses, u)
		}
	}
	readings := map[Class]classes.Reading{}
	for _, c := range measured.Classes {
		readings[Class{c.Resource, c.Class}] = c.Reading
	}
	for _, r := range status.Resources {
		if _, ofClasses := promisers[r.Name].(classes.ClassMeter); !ofClasses {
			continue
		}
		for class, assigned := range r.InUse {
			if assigned > 0 { // also without a reading, so that the verdict names what is not measured
				add(Use{Resource: r.Name, Class: class, Reading: readings[Class{r.Name, class}]}, classes.Holder{})
			}
		}
	}
	for _, h := range measured.Holders {
		if _, ofClasses := promisers[h.Resource].(classes.ClassMeter); !ofClasses {
			add(Use{Resource: h.Resource, Class: h.Class, ID: h.ID, Name: h.String(), Reading: h.Reading}, h.Holder)
		}
	}
	return s
}
