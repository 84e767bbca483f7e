// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package blame finds out when a container has waited, and which other containers have then used more of the same
// resource. The container that waits is the victim; the others are its culprits. Points and tracks are those of package
// history.
package blame

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These are the thresholds of the judge, as fractions of the time, of a use, or of a rise.
const (
	// In the interval, the fraction of the time in which the container waits must be at least leastWait higher than
	// outside of it, and at least leastRatio times as high.
	leastWait, leastRatio = 0.1, 2
	// leastLoss is the fraction that a container must lose of its cache, or of its memory bandwidth for each second of
	// CPU time.
	leastLoss = 0.25
	// To be named, a container must use at least leastRise times as much as before. Its part of the rise of all must be
	// at least leastShare, and the correlation of its use with the waiting at least leastCorrelation.
	leastRise, leastShare, leastCorrelation = 1.5, 0.25, 0.5
	// A container that always waits is reported if it waits for at least the fraction `always` of the time.
	always = 0.2
	// A limit counts as reached if the use is at least atLimit times the limit. If the use is above overLimit times the
	// limit, the limit was not in force yet.
	atLimit, overLimit = 0.9, 1.5
	// leastCPU is the minimum number of CPUs that a container uses while it computes.
	leastCPU = 0.01
)

// mostCulprits is the maximum number of containers that a finding names.
const mostCulprits = 5

// Limits are the bounds that the classes of a container set on its use, and those that the classes of its pod set on
// the use of all containers of the pod. For cumulative series, they are per second.
type Limits struct{ Container, Pod map[classes.Series]float64 }

// Judge returns the intervals that end after `since` and in which a container suffered, the worst first. `victim` is
// the index of the container's track.
func Judge(w *history.Window, victim int, own Limits, since time.Time) (findings []reports.Finding) {
	j := newJudge(w, victim, own, since)
	if len(j.times) < 3*fewest {
		return nil
	}
	for _, finding := range []reports.Finding{j.io(), j.memory(), j.cpu()} {
		if finding.Kind != "" {
			findings = append(findings, finding)
		}
	}
	for _, series := range slices.SortedFunc(maps.Keys(j.victim.Values), bySeries) {
		finding := reports.Finding{}
		switch series.Measure {
		case history.Bandwidth:
			finding = j.bandwidth(series)
		case history.Occupancy:
			finding = j.cache(series)
		}
		if finding.Kind != "" {
			findings = append(findings, finding)
		}
	}
	slices.SortStableFunc(findings, func(a, b reports.Finding) int { return cmp.Compare(severity(&b), severity(&a)) })
	return findings
}

// severity is higher for a finding with more suffering, and for one whose first culprit explains it better.
func severity(f *reports.Finding) float64 {
	more := math.Abs(f.During - f.Before)
	if f.Kind == reports.Bandwidth || f.Kind == reports.Cache {
		more /= max(f.Before, 1)
	}
	if len(f.Culprits) > 0 {
		more += f.Culprits[0].Share * f.Culprits[0].Correlation
	}
	return more
}

func bySeries(a, b classes.Series) int {
	return cmp.Or(cmp.Compare(a.Measure, b.Measure), cmp.Compare(a.Part, b.Part))
}

// judge has the points of a window in which the victim ran.
type judge struct {
	w      *history.Window
	victim *history.Track
	own    Limits
	// The victim ran in the points from `first` on. `times` has their beginnings. `since` is the first point to look
	// at.
	first, points, since int
	times                []time.Time
}

func newJudge(w *history.Window, victim int, own Limits, since time.Time) *judge {
	j := &judge{w: w, victim: &w.Tracks[victim], own: own}
	to := min(j.victim.To, w.Points())
	j.first = min(j.victim.From, to)
	j.points = to - j.first
	j.times = w.Times[j.first:to]
	for j.since < j.points && !w.Times[j.first+j.since+1].After(since) {
		j.since++
	}
	return j
}

// values returns the values of a series of a container in the points of the victim.
func (j *judge) values(t *history.Track, series classes.Series) []float64 {
	values := make([]float64, j.points)
	if all := t.Values[series]; all != nil {
		for i := range values {
			values[i] = float64(all[j.first+i])
		}
	}
	return values
}

// inPod returns a judge of the same victim with only the containers of its pod.
func (j *judge) inPod() *judge {
	in, w := *j, *j.w
	w.Tracks = slices.DeleteFunc(slices.Clone(w.Tracks), func(t history.Track) bool { return t.PodUID != j.victim.PodUID })
	in.w = &w
	return &in
}

func (j *judge) ofVictim(measure string) []float64 {
	return j.values(j.victim, classes.Series{Measure: measure})
}

// waited returns the finding for the waiting of the victim, without causes. If the waiting neither rises nor is always
// high, Kind is empty.
func (j *judge) waited(kind reports.Kind, waiting []float64) (f reports.Finding, s span) {
	s, ok := highest(waiting, j.since)
	if ok {
		f = j.during(kind, waiting, s)
		if f.During-f.Before >= leastWait && f.During >= leastRatio*f.Before && stands(waiting, s) {
			return f, s
		}
	}
	s = span{min(j.since, j.points-1), j.points}
	mean, _ := means(waiting, span{0, j.points})
	if !ok || mean < always {
		return reports.Finding{}, s
	}
	f = j.during(kind, waiting, span{0, j.points})
	f.Before, f.Always = f.During, true
	return f, span{0, j.points}
}

func (j *judge) during(kind reports.Kind, values []float64, s span) reports.Finding {
	use := useOf(classes.Series{}, values, s)
	return reports.Finding{Kind: kind, From: j.times[s.from], To: j.w.Times[j.first+s.to], Before: use.Before, During: use.During}
}
