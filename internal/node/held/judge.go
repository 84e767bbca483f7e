// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package held compares what classes promise with what the kernel measures. A promise is a bound of a class on one
// measured value (classes.Promise); the kernel enforces it. A class holds it if its containers use no more. Judge
// decides and does no I/O; Watch takes the samples.
package held

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// These constants are the rules of the Judge. docs/held.md states them.
const (
	// Window is the time over which use is compared with a bound. If minSamples intervals are longer, they are the
	// window.
	Window     = time.Minute
	minSamples = 4
	// reachedShare is the fraction of a bound at which the bound counts as reached, if the kernel has no counter for
	// this.
	reachedShare = 0.9
)

// Use has the promises of a class to one holder, or to the class as a whole, and what was measured.
type Use struct {
	Resource, Class string
	// ID and Name identify the container or pod. They are empty for a class as a whole.
	ID, Name string
	Promises []classes.Promise
	Reading  classes.Reading
}

// Sample has the uses of one moment. Promising has the classes with promises, with or without holders.
type Sample struct {
	Time      time.Time
	Uses      []Use
	Promising []Class
}

// Class is a class of a resource.
type Class struct{ Resource, Name string }

// Judge compares samples with promises. It is not safe for concurrent use.
type Judge struct {
	window time.Duration
	tracks map[key]*track
	// `reached` has the limits that were reached. `compared` has the beginning of the first whole window in which a
	// holder of the class was measured, by class.
	reached  map[limit]bool
	compared map[Class]time.Time
	last     map[Class]Verdict
}

// A `key` identifies a promise to one holder. A `limit` identifies the same promise to all holders of the class.
type (
	key struct {
		limit
		id string
	}
	limit struct {
		Class
		promise string
		use     classes.Series
	}
)

// NewJudge returns a Judge for samples that are taken at an interval.
func NewJudge(interval time.Duration) *Judge {
	return &Judge{
		window: max(Window, minSamples*interval), tracks: map[key]*track{}, reached: map[limit]bool{}, compared: map[Class]time.Time{},
		last: map[Class]Verdict{},
	}
}

// Add adds a sample, and returns the verdicts on all classes with promises. orSame says when the message of a verdict
// changes.
func (j *Judge) Add(s Sample) map[Class]Verdict {
	seen, opinions := map[key]bool{}, map[Class]*opinion{}
	for _, c := range s.Promising {
		opinions[c] = &opinion{}
	}
	for _, use := range s.Uses {
		c := Class{use.Resource, use.Class}
		for _, p := range use.Promises {
			if opinions[c] == nil {
				opinions[c] = &opinion{}
			}
			k := key{limit{c, p.Name, p.Use}, use.ID}
			seen[k] = true
			opinions[c].findings = append(opinions[c].findings, j.follow(k, use.Name, s.Time, p, use.Reading))
		}
	}
	j.forget(seen, opinions)

	verdicts := map[Class]Verdict{}
	for c, o := range opinions {
		o.since = j.compared[c]
		verdicts[c] = o.verdict().orSame(j.last[c])
	}
	j.last = verdicts
	return maps.Clone(verdicts)
}

// follow adds the use of a holder to its track. If a bound has changed, the comparison begins again.
func (j *Judge) follow(k key, name string, now time.Time, p classes.Promise, reading classes.Reading) finding {
	t := j.tracks[k]
	if t == nil || t.promise != p {
		if t != nil {
			delete(j.reached, k.limit)
			delete(j.compared, k.Class)
		}
		t = &track{promise: p}
		j.tracks[k] = t
	}
	t.add(now, j.window, reading)
	if t.reaches() {
		j.reached[k.limit] = true
	}
	if j.compared[k.Class].IsZero() && t.complete {
		j.compared[k.Class] = t.points[0].time
	}
	return finding{promise: p, holder: name, track: t, reached: j.reached[k.limit]}
}

// forget removes the tracks of holders that no longer have their class, and what is known of removed classes.
func (j *Judge) forget(seen map[key]bool, opinions map[Class]*opinion) {
	maps.DeleteFunc(j.tracks, func(k key, _ *track) bool { return !seen[k] })
	maps.DeleteFunc(j.reached, func(l limit, _ bool) bool { return opinions[l.Class] == nil })
	maps.DeleteFunc(j.compared, func(c Class, _ time.Time) bool { return opinions[c] == nil })
	for l := range j.reached {
		opinions[l.Class].reached = true
	}
}

// opinion collects the findings about one class, and what earlier samples have shown.
type opinion struct {
	findings []finding
	// `reached` is true if any limit was reached. `since` is the beginning of the first whole window with the present
	// limits, or zero. Both include holders that no longer have the class.
	reached bool
	since   time.Time
}

// finding is what the Judge knows about one promise to one holder.
type finding struct {
	promise classes.Promise
	holder  string
	track   *track
	reached bool
}

// where returns the findings for which `is` returns true. The one with the highest ratio of use to bound is the first.
func (o *opinion) where(is func(finding) bool) (some []finding) {
	for _, f := range o.findings {
		if is(f) {
			some = append(some, f)
		}
	}
	slices.SortFunc(some, func(a, b finding) int {
		return cmp.Or(cmp.Compare(b.track.ratio(), a.track.ratio()), cmp.Compare(a.holder, b.holder),
			cmp.Compare(a.promise.Name, b.promise.Name), cmp.Compare(a.promise.Use.Part, b.promise.Use.Part))
	})
	return some
}
