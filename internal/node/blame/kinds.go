// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// io judges the waiting for I/O. The culprits use a disk that the victim uses.
func (j *judge) io() reports.Finding {
	waiting := j.ofVictim(history.IOWaiting)
	f, s := j.waited(reports.IO, waiting)
	if f.Kind == "" {
		return f
	}
	disks := j.disksOf(j.victim)
	for _, disk := range disks {
		f.Own = append(f.Own, j.limited(usesOf(disk), s)...)
	}
	if f.Always {
		return f
	}
	if len(f.Own) > 0 {
		for _, disk := range disks {
			f.Culprits = append(f.Culprits, j.siblings(&f, usesOf(disk), waiting, s)...)
		}
		return ranked(f)
	}
	for _, disk := range disks {
		uses := usesOf(disk)
		f.Own = append(f.Own, j.rises(uses, waiting, s)...)
		f.Culprits = append(f.Culprits, j.culprits(uses, waiting, s)...)
	}
	return ranked(f)
}

func usesOf(disk string) (uses []classes.Series) {
	for _, measure := range []string{history.ReadBytes, history.WrittenBytes, history.Reads, history.Writes} {
		uses = append(uses, classes.Series{Measure: measure, Part: disk})
	}
	return uses
}

// disksOf returns the disks that a container used in the window.
func (j *judge) disksOf(t *history.Track) (disks []string) {
	for series := range t.Values {
		if slices.Contains([]string{history.Reads, history.Writes}, series.Measure) {
			disks = append(disks, series.Part)
		}
	}
	slices.Sort(disks)
	return slices.Compact(disks)
}

// memory judges the waiting for memory. The culprits are the containers that take more memory. If no container takes
// more, they are those with more refaults. If a container takes more, the containers with refaults wait like the
// victim, and are not the cause.
func (j *judge) memory() reports.Finding {
	waiting := j.ofVictim(history.MemoryWaiting)
	f, s := j.waited(reports.MemoryUse, waiting)
	if f.Kind == "" {
		return f
	}
	for _, part := range []string{"", history.OfPod} {
		for _, measure := range []string{history.HighEvents, history.MaxEvents} {
			events := j.values(j.victim, classes.Series{Measure: measure, Part: part})
			if use := useOf(classes.Series{Measure: measure}, events, s); use.During > 0 && partAbove(events, s, 0) >= 0.5 {
				f.Own = append(f.Own, reports.Own{Reason: reports.OwnMemoryLimit, Use: use, Pod: part != ""})
			}
		}
	}
	memory, refaults := []classes.Series{{Measure: history.Memory}}, []classes.Series{{Measure: history.Refaults}}
	if f.Always {
		return f
	}
	if len(f.Own) > 0 {
		f.Culprits = j.siblings(&f, memory, waiting, s)
		return ranked(f)
	}
	f.Own = j.rises(memory, waiting, s)
	if f.Culprits = j.culprits(memory, waiting, s); len(f.Culprits)+len(f.Own) == 0 {
		f.Culprits = j.culprits(refaults, waiting, s)
	}
	return ranked(f)
}

// siblings returns the culprits in the victim's pod, if the victim reached only limits of the pod.
func (j *judge) siblings(f *reports.Finding, uses []classes.Series, waiting []float64, s span) []reports.Culprit {
	if slices.ContainsFunc(f.Own, func(own reports.Own) bool { return !own.Pod }) {
		return nil
	}
	return j.inPod().culprits(uses, waiting, s)
}

// cpu judges the waiting for a CPU, without the time in which the limit of the container or of its pod throttled it.
func (j *judge) cpu() reports.Finding {
	waiting, container, pod := j.ofVictim(history.CPUWaiting), j.throttled(""), j.throttled(history.OfPod)
	f, s := j.waited(reports.CPU, waiting)
	if f.Kind == "" {
		return f
	}
	others := slices.Clone(waiting)
	for i := range others {
		others[i] = max(0, waiting[i]-max(container[i], pod[i]))
	}

	uses := []classes.Series{{Measure: history.CPUUsed}}
	for _, throttled := range [][]float64{container, pod} {
		use := useOf(classes.Series{Measure: history.Throttled}, throttled, s)
		// With one container in the pod, both have the same limit.
		if use.During >= leastWait && (f.Always || use.During-use.Before >= leastWait) && len(f.Own) == 0 {
			f.Own = append(f.Own, reports.Own{Reason: reports.OwnThrottled, Use: use, Pod: &throttled[0] == &pod[0]})
		}
	}
	if f.Always {
		return f
	}
	if len(f.Own) > 0 {
		f.Culprits = j.siblings(&f, uses, waiting, s)
	}
	if more := useOf(uses[0], others, s); len(f.Culprits) == 0 && more.During-more.Before >= leastWait && more.During >= leastRatio*more.Before {
		f.Own = append(f.Own, j.rises(uses, others, s)...)
		f.Culprits = j.culprits(uses, others, s)
	}
	return ranked(f)
}

// throttled returns the part of the time in which the CPU limit of the victim or of its pod throttled it. The kernel
// adds this time up over all CPUs. In each second, n CPUs are either used or throttled, so the part is the throttled
// time divided by the sum of throttled and used time.
func (j *judge) throttled(part string) []float64 {
	sum := j.values(j.victim, classes.Series{Measure: history.Throttled, Part: part})
	used := j.values(j.victim, classes.Series{Measure: history.CPUUsed, Part: part})
	for i := range sum {
		sum[i] /= max(1, sum[i]+used[i])
	}
	return sum
}

// bandwidth judges the bytes that the victim transfers per second of its CPU time, because a container that computes
// less transfers less without suffering.
func (j *judge) bandwidth(series classes.Series) reports.Finding {
	perSecond, used := j.values(j.victim, series), j.ofVictim(history.CPUUsed)
	for i := range perSecond {
		perSecond[i] /= max(used[i], leastCPU) // with less, the point does not count
	}
	return j.lost(reports.Bandwidth, series, perSecond)
}

// cache judges the bytes of a cache that the victim occupies while it computes.
func (j *judge) cache(series classes.Series) reports.Finding {
	return j.lost(reports.Cache, series, j.values(j.victim, series))
}

// computes reports for each point whether the victim computed. A container that is idle needs neither bandwidth nor a cache.
func (j *judge) computes() []bool {
	used := j.ofVictim(history.CPUUsed)
	mean, _ := means(used, span{0, j.points})
	computes := make([]bool, j.points)
	for i := range used {
		computes[i] = used[i] >= max(leastCPU, mean/4)
	}
	return computes
}

// lost judges a value that falls when others use more of the same series. Only the points in which the victim computed count.
func (j *judge) lost(kind reports.Kind, series classes.Series, values []float64) reports.Finding {
	computes, most := j.computes(), 0.0
	for i, v := range values {
		if computes[i] {
			most = max(most, v)
		}
	}
	if most == 0 {
		return reports.Finding{}
	}
	missing := make([]float64, len(values))
	for i, v := range values {
		if computes[i] {
			missing[i] = 1 - v/most
		}
	}
	s, ok := highest(missing, j.since)
	if !ok {
		return reports.Finding{}
	}

	var inside, outside []float64
	for i, v := range values {
		switch {
		case !computes[i]:
		case i >= s.from && i < s.to:
			inside = append(inside, v)
		default:
			outside = append(outside, v)
		}
	}
	if min(len(inside), len(outside)) < fewest || !stands(missing, s) {
		return reports.Finding{}
	}
	f := j.during(kind, values, s)
	f.During, _ = means(inside, span{0, len(inside)})
	f.Before, _ = means(outside, span{0, len(outside)})
	if f.During > (1-leastLoss)*f.Before {
		return reports.Finding{}
	}
	f.Part = series.Part
	f.Culprits = j.culprits([]classes.Series{series}, missing, s)
	if len(f.Culprits) == 0 {
		return reports.Finding{} // a container that does other work and uses less does not suffer
	}
	return f
}

// limited returns the limits of the classes of the victim and its pod that were reached in most of the interval. A use
// far above a limit shows that the container got the class later.
func (j *judge) limited(uses []classes.Series, s span) (own []reports.Own) {
	for _, series := range uses {
		if limit, values := j.own.Container[series], j.values(j.victim, series); reached(values, s, limit) {
			own = append(own, reports.Own{Reason: reports.OwnClassLimit, Use: useOf(series, values, s), Limit: limit})
		}
		if limit, values := j.own.Pod[series], j.inPod().sum(series); reached(values, s, limit) {
			own = append(own, reports.Own{Reason: reports.OwnClassLimit, Use: useOf(series, values, s), Limit: limit, Pod: true})
		}
	}
	return own
}

func reached(values []float64, s span, limit float64) bool {
	return limit > 0 && partAbove(values, s, atLimit*limit) >= 0.5 && partAbove(values, s, overLimit*limit) < 0.5
}

// sum returns the values of all containers.
func (j *judge) sum(series classes.Series) []float64 {
	sum := make([]float64, j.points)
	for i := range j.w.Tracks {
		for at, value := range j.values(&j.w.Tracks[i], series) {
			sum[at] += value
		}
	}
	return sum
}

// useOf returns a use with its means inside and outside of an interval. If the interval is everything, both are equal.
func useOf(series classes.Series, values []float64, s span) reports.Use {
	during, before := means(values, s)
	if s.len() == len(values) {
		before = during
	}
	return reports.Use{Series: series, Before: before, During: during}
}

// partAbove returns the part of the points of an interval whose values are above a bound.
func partAbove(values []float64, s span, bound float64) float64 {
	n := 0
	for _, v := range values[s.from:s.to] {
		if v > bound {
			n++
		}
	}
	return float64(n) / float64(s.len())
}
