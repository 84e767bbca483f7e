// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// mostSufferers is the maximum number of containers in a report.
const mostSufferers = 16

// ErrTooShort means that the history is too short. Other errors of Blame wrap those of package history.
var ErrTooShort = errors.New("too little is recorded")

// Request selects containers.
type Request struct {
	history.Selection
	// Since leaves out intervals that ended longer ago. 0 means that all intervals count.
	Since time.Duration
}

// Blamer answers requests from the history.
type Blamer struct {
	store    *state.View
	recorder *history.Recorder
	now      func() time.Time
}

// New returns a blamer. It does no I/O.
func New(store *state.View, recorder *history.Recorder, now func() time.Time) *Blamer {
	return &Blamer{store: store, recorder: recorder, now: now}
}

func (r Request) check() error {
	if r.Since < 0 {
		return fmt.Errorf("%w: since is %s; write how far to look back, e.g. 5m", history.ErrInvalid, r.Since)
	}
	return r.Check()
}

// Blame judges the selected containers. It answers one request at a time. `ctx` limits how long it waits for other
// requests.
func (b *Blamer) Blame(ctx context.Context, r Request) (reports.Blame, error) {
	if err := r.check(); err != nil {
		return reports.Blame{}, err
	}
	w, done, err := b.recorder.Borrow(ctx)
	if err != nil {
		return reports.Blame{}, err
	}
	defer done()
	if w.Points() < 3*fewest {
		return reports.Blame{}, fmt.Errorf("%w: %d of %d samples since the plugin started; ask again in %s", ErrTooShort,
			w.Points(), 3*fewest, time.Duration(3*fewest-w.Points())*b.recorder.HistoryInterval())
	}
	selected, err := w.Select(r.Selection)
	if err != nil {
		return reports.Blame{}, err
	}
	if !pressed(&w) {
		return reports.Blame{}, fmt.Errorf("%w: the kernel shows no pressure stall information; boot it with psi=1", history.ErrNotRecorded)
	}

	report := reports.Blame{From: w.Times[0], To: w.Times[w.Points()], Points: w.Points(), Incomplete: w.Incomplete}
	since := time.Time{}
	if r.Since > 0 {
		since = b.now().Add(-r.Since)
	}
	for _, i := range selected {
		c := w.Tracks[i].Container
		s := reports.Sufferer{Container: c, Findings: Judge(&w, i, b.limits(c), since)}
		if len(s.Findings) > 0 || r.Pod != "" {
			report.Sufferers = append(report.Sufferers, s)
		}
	}
	slices.SortStableFunc(report.Sufferers, func(a, b reports.Sufferer) int { return cmp.Compare(worst(&b), worst(&a)) })
	report.Sufferers = report.Sufferers[:min(len(report.Sufferers), mostSufferers)]
	b.suggest(&report)
	return report, nil
}

func worst(s *reports.Sufferer) float64 {
	if len(s.Findings) == 0 {
		return 0
	}
	return severity(&s.Findings[0])
}

// pressed reports whether the kernel shows pressure stall information, or RDT is monitored.
func pressed(w *history.Window) bool {
	return slices.ContainsFunc(w.Series, func(series classes.Series) bool {
		switch series.Measure {
		case history.IOWaiting, history.MemoryWaiting, history.CPUWaiting, history.Bandwidth, history.Occupancy:
			return true
		}
		return false
	})
}

// limits returns the bounds of the classes of a running container and of its pod.
func (b *Blamer) limits(c reports.Container) (limits Limits) {
	if e, running := b.store.Get(c.ID); running {
		limits.Container = b.promised(e)
	}
	pods := b.store.InPod(c.PodUID, func(e *state.Holding) bool { return e.Scope() == classes.PodScope && e.Phase.Started() })
	for _, pod := range pods {
		limits.Pod = b.promised(pod)
	}
	return limits
}

// promised returns the bounds of a holder's classes.
func (b *Blamer) promised(e state.Holding) map[classes.Series]float64 {
	limits, live := map[classes.Series]float64{}, b.store.Live()
	for _, a := range e.Assignments {
		resource := live.Resources[a.Resource]
		promiser, is := resource.Promiser()
		if _, ofClass := resource.Backend.(classes.ClassMeter); !is || ofClass {
			continue
		}
		class := e.ObservedClass(a.Resource)
		if class == classes.SystemDefault {
			continue
		}
		for _, p := range promiser.Promises(e.Holder, class) {
			if p.Bound > 0 && (limits[p.Use] == 0 || p.Bound < limits[p.Use]) {
				limits[p.Use] = p.Bound
			}
		}
	}
	return limits
}

// suggest adds a suggestion to each culprit that still runs. It marks the other culprits as ended.
func (b *Blamer) suggest(report *reports.Blame) {
	live, status := b.store.Live(), b.store.Status()
	for _, s := range report.Sufferers {
		for _, f := range s.Findings {
			for i := range f.Culprits {
				c := &f.Culprits[i]
				e, runs := b.store.Get(c.ID)
				if c.Ended = !runs || !e.Phase.Started(); !c.Ended {
					c.Suggestion = Suggest(c, offers(live, status, e))
				}
			}
		}
	}
}

// offers returns the limits of the classes that a container can get. It leaves out full classes and the present classes
// of the container.
func offers(live state.Offering, status state.Status, e state.Holding) (offers []reports.Offer) {
	for i := range status.Resources {
		r := &status.Resources[i]
		promiser, is := live.Resources[r.Name].Promiser()
		if !is || r.Scope == classes.VolumeScope {
			continue
		}
		for _, class := range r.Classes {
			if r.IsFull(class) || class.Name == e.ObservedClass(r.Name) {
				continue
			}
			for _, p := range promiser.Promises(e.Holder, class.Name) {
				offers = append(offers, reports.Offer{
					Resource: r.Name, Class: class.Name, Name: p.Name, Series: p.Use, Bound: p.Bound, Mutable: r.Mutable, Pod: r.Scope == classes.PodScope,
				})
			}
		}
	}
	return offers
}
