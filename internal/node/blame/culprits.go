// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"cmp"
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// rise describes how much the use of a container rose in an interval. `share` is its part of the rise of all containers, and `correlation`
// that of the use with the waiting. `fits` is true if the use can be the reason for the waiting.
type rise struct {
	reports.Use
	share, correlation float64
	fits               bool
}

// weight says how well the use explains the waiting.
func (r rise) weight() float64 { return r.share * r.correlation }

// culprits returns the containers whose use rose in an interval, the best fit first.
func (j *judge) culprits(uses []classes.Series, waiting []float64, s span) (all []reports.Culprit) {
	totals := j.totals(uses, s)
	for i := range j.w.Tracks {
		t := &j.w.Tracks[i]
		if t.ID == j.victim.ID {
			continue
		}
		if r := j.rise(t, uses, totals, waiting, s); r.fits {
			all = append(all, reports.Culprit{Container: t.Container, Use: r.Use, Share: r.share, Correlation: r.correlation})
		}
	}
	return all
}

// ranked orders the culprits of a finding, and names the disk or cache of the first one.
func ranked(f reports.Finding) reports.Finding {
	slices.SortStableFunc(f.Culprits, func(a, b reports.Culprit) int { return cmp.Compare(b.Share*b.Correlation, a.Share*a.Correlation) })
	named := map[string]bool{}
	f.Culprits = slices.DeleteFunc(f.Culprits, func(c reports.Culprit) bool { // a device mapper and its disk have the same use
		again := named[c.ID]
		named[c.ID] = true
		return again
	})
	f.Culprits = f.Culprits[:min(len(f.Culprits), mostCulprits)]
	if len(f.Culprits) > 0 {
		f.Part = f.Culprits[0].Part
	}
	return f
}

// rises returns the victim's own use that explains its waiting best. The result is empty if no use rose enough.
func (j *judge) rises(uses []classes.Series, waiting []float64, s span) []reports.Own {
	r := j.rise(j.victim, uses, j.totals(uses, s), waiting, s)
	if !r.fits || r.During < leastRatio*r.Before {
		return nil
	}
	return []reports.Own{{Reason: reports.OwnUse, Use: r.Use}}
}

// totals returns the sum of the rises of all containers, and the sum of their use in the interval, by series.
func (j *judge) totals(uses []classes.Series, s span) map[classes.Series]total {
	totals := map[classes.Series]total{}
	for i := range j.w.Tracks {
		for _, series := range uses {
			if j.w.Tracks[i].Values[series] == nil {
				continue
			}
			during, before := means(j.values(&j.w.Tracks[i], series), s)
			t := totals[series]
			t.rise += max(0, during-before)
			t.use += during
			totals[series] = t
		}
	}
	return totals
}

type total struct{ rise, use float64 }

// rise returns the use of the container `t` that explains the waiting best, i.e. that has the highest weight. If no use
// fits, the result does not fit either.
func (j *judge) rise(t *history.Track, uses []classes.Series, totals map[classes.Series]total, waiting []float64, s span) (best rise) {
	for _, series := range uses {
		if t.Values[series] == nil {
			continue
		}
		values := j.values(t, series)
		during, before := means(values, s)
		of := totals[series]
		// A rise that is small compared with the use of all containers cannot be the reason.
		if during < leastRise*before || during-before < leastShare*of.rise || during-before < leastShare/3*of.use {
			continue
		}
		r := rise{
			Use:   reports.Use{Series: series, Before: before, During: during},
			share: (during - before) / of.rise, correlation: correlation(values, waiting),
		}
		r.fits = r.correlation >= leastCorrelation && stands(values, s)
		if r.fits && (!best.fits || r.weight() > best.weight()) {
			best = r
		}
	}
	return best
}
