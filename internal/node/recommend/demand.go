// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"cmp"
	"slices"
	"strings"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// localBandwidth is the measure that classes limit in MBps. The history has only the total bandwidth, which is at least
// as high.
const localBandwidth = "memory_bandwidth_local_bytes_total"

// A proposed class has the name of the container or pod with the suffix `fit`. `longestName` is the maximum length of
// the name of a class.
const (
	fit         = "-fit"
	longestName = 63
)

// recorded returns the series of the history that is compared with a bound on series `s`.
func recorded(s classes.Series) classes.Series {
	if s.Measure == localBandwidth {
		s.Measure = history.Bandwidth
	}
	return s
}

// promises returns the promises of each class to a container or pod. It leaves out classes without promises.
func (of resource) promises(e state.Holding) map[string][]classes.Promise {
	target, promises := e.Holder, map[string][]classes.Promise{}
	if of.shared {
		target = classes.Holder{}
	}
	for _, offered := range of.Classes {
		if all := of.promiser.Promises(target, offered.Name); len(all) > 0 {
			promises[offered.Name] = all
		}
	}
	return promises
}

// demand returns what the containers of `tracks` used in a span, the class `present` that they had, and the classes
// that they can have. If the history has no value that these classes limit, it returns nil, and `problem` is the
// reason.
func (v *view) demand(of resource, promises map[string][]classes.Promise, present string, tracks []int, s span) (d *Demand, problem string) {
	d = &Demand{Present: present}
	held, measures := map[classes.Series][]bool{}, map[string]bool{}
	unknown, fromZero := "", false
	for _, offered := range of.Classes {
		class, others := Class{Name: offered.Name}, v.others(of, offered.Name, tracks)
		for _, p := range promises[offered.Name] {
			if p.Bound <= 0 {
				unknown = p.Unknown
				continue
			}
			l := Limit{Name: p.Name, Series: recorded(p.Use), Bound: p.Bound}
			if len(others) > 0 {
				l.Others = v.values(others, l.Series, s)
			}
			if class.Limits = append(class.Limits, l); offered.Name == d.Present {
				held[l.Series] = v.held(&p, &l, tracks, s)
			}
			measures[l.Series.Measure] = true
			fromZero = fromZero || p.FromZero
		}
		d.Classes = append(d.Classes, class)
	}
	for _, series := range v.used(tracks, measures) {
		d.Uses = append(d.Uses, Use{series, v.values(tracks, series, s), held[series]})
	}
	switch {
	case len(measures) == 0:
		return nil, unknown
	case len(d.Uses) > 0 || fromZero: // a disk is in the history after its first use
		return d, ""
	case of.shared:
		return nil, `the container is not monitored; add "monitoring: containers" to the class file`
	}
	return nil, "the history has none of the values that its classes limit"
}

// held reports for each point whether a limit of the present class was reached.
func (v *view) held(p *classes.Promise, l *Limit, tracks []int, s span) []bool {
	values := v.values(tracks, l.Series, s)
	for i := range min(len(values), len(l.Others)) {
		values[i] += l.Others[i]
	}
	var reached, waited []float64
	if p.Reached.Measure != "" {
		reached = v.values(tracks, p.Reached, s)
	}
	if p.Waited.Measure != "" {
		waited = v.values(tracks, p.Waited, s)
	}
	return HeldAt(values, l.Bound, reached, waited)
}

// others returns the tracks of the other containers of a class, if the containers of a class share its limits.
func (v *view) others(of resource, class string, tracks []int) (others []int) {
	if !of.shared {
		return nil
	}
	for i := range v.window.Tracks {
		if e, runs := v.Get(v.window.Tracks[i].ID); runs && !slices.Contains(tracks, i) && e.ObservedClass(of.Name) == class {
			others = append(others, i)
		}
	}
	return others
}

// used returns the series of the given `tracks` whose measure is in `measures`, sorted by part, then by measure.
func (v *view) used(tracks []int, measures map[string]bool) (all []classes.Series) {
	for _, i := range tracks {
		for series := range v.window.Tracks[i].Values {
			if measures[series.Measure] {
				all = append(all, series)
			}
		}
	}
	slices.SortFunc(all, func(a, b classes.Series) int {
		return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Measure, b.Measure))
	})
	return slices.Compact(all)
}

// values returns the sum of a series over `tracks`, for each point of a span.
func (v *view) values(tracks []int, series classes.Series, s span) []float64 {
	sums := make([]float64, s.to-s.from)
	for _, i := range tracks {
		for at, value := range v.window.Tracks[i].Values[series] {
			if at >= s.from && at < s.to {
				sums[at-s.from] += float64(value)
			}
		}
	}
	return sums
}

// classFile returns a class file with a class that has the bounds of `figures`, or nil if the backend cannot write one.
func classFile(of resource, c reports.Container, figures []reports.Figure) map[string]any {
	drafter, is := of.promiser.(classes.Drafter)
	if !is {
		return nil
	}
	name := cmp.Or(c.Name, c.Pod)
	name = strings.TrimRight(name[:min(len(name), longestName-len(fit))], "-.") + fit
	var bounds []classes.Bound
	for _, f := range figures {
		bounds = append(bounds, classes.Bound{Use: f.Series, Value: f.Bound})
	}
	section := drafter.Draft(name, bounds)
	if section == nil {
		return nil
	}
	resource := map[string]any{"name": of.Name, "classes": []any{map[string]any{"name": name}}, of.Kind: section}
	if of.Scope == classes.PodScope {
		resource["scope"] = string(classes.PodScope)
	}
	return map[string]any{"apiVersion": classes.APIVersion, "kind": classes.FileKind, "resources": []any{resource}}
}
