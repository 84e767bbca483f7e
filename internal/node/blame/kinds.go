// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame

import (
	"slices"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// io judges the waiting for I/O. The culprits use a disk that the victim uses.
func (j *judge) io() Finding {
	waiting := j.ofVictim(history.IOWaiting)
	f, s := j.waited(IO, waiting)
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
		return f.ranked()
	}
	for _, disk := range disks {
		uses := usesOf(disk)
		f.Own = append(f.Own, j.rises(uses, waiting, s)...)
		f.Culprits = append(f.Culprits, j.culprits(uses, waiting, s)...)
	}
	return f.ranked()
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

// memory judges the waiting for memory. The culprits take more memory. Only if no container takes more, they are those
// with more refaults: otherwise, containers with refaults wait like the victim, and are not the cause.
func (j *judge) memory() Finding {
	waiting := j.ofVictim(history.MemoryWaiting)
	f, s := j.waited(MemoryUse, waiting)
	if f.Kind == "" {
		return f
	}
	for _, part := range []string{"", history.OfPod} {
		for _, measure := range []string{history.HighEvents, history.MaxEvents} {
			events := j.values(j.victim, classes.Series{Measure: measure, Part: part})
			if during, before := j.means(events, s); during > 0 && partAbove(events, s, 0) >= 0.5 {
				own := Own{Reason: OwnMemoryLimit, Series: classes.Series{Measure: measure}, Before: before, During: during, Pod: part != ""}
				f.Own = append(f.Own, own)
			}
		}
	}
	memory, refaults := []classes.Series{{Measure: history.Memory}}, []classes.Series{{Measure: history.Refaults}}
	if f.Always {
		return f
	}
	if len(f.Own) > 0 {
		f.Culprits = j.siblings(&f, memory, waiting, s)
		return f.ranked()
	}
	f.Own = j.rises(memory, waiting, s)
	if f.Culprits = j.culprits(memory, waiting, s); len(f.Culprits)+len(f.Own) == 0 {
		f.Culprits = j.culprits(refaults, waiting, s)
	}
	return f.ranked()
}

// siblings returns the culprits in the victim's pod, if the victim reached only limits of the pod.
func (j *judge) siblings(f *Finding, uses []classes.Series, waiting []float64, s span) []Culprit {
	if slices.ContainsFunc(f.Own, func(own Own) bool { return !own.Pod }) {
		return nil
	}
	return j.inPod().culprits(uses, waiting, s)
}

// cpu judges the waiting for a CPU, without the time in which the limit of the container or of its pod throttled it.
func (j *judge) cpu() Finding {
	waiting, container, pod := j.ofVictim(history.CPUWaiting), j.throttled(""), j.throttled(history.OfPod)
	f, s := j.waited(CPU, waiting)
	if f.Kind == "" {
		return f
	}
	others := slices.Clone(waiting)
	for i := range others {
		others[i] = max(0, waiting[i]-max(container[i], pod[i]))
	}

	uses := []classes.Series{{Measure: history.CPUUsed}}
	for _, throttled := range [][]float64{container, pod} {
		during, before := j.means(throttled, s)
		// With one container in the pod, both have the same limit.
		if during >= leastWait && (f.Always || during-before >= leastWait) && len(f.Own) == 0 {
			own := Own{Reason: OwnThrottled, Series: classes.Series{Measure: history.Throttled}, Before: before, During: during, Pod: &throttled[0] == &pod[0]}
			f.Own = append(f.Own, own)
		}
	}
	if f.Always {
		return f
	}
	if len(f.Own) > 0 {
		f.Culprits = j.siblings(&f, uses, waiting, s)
	}
	if more, less := j.means(others, s); len(f.Culprits) == 0 && more-less >= leastWait && more >= leastRatio*less {
		f.Own = append(f.Own, j.rises(uses, others, s)...)
		f.Culprits = j.culprits(uses, others, s)
	}
	return f.ranked()
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
func (j *judge) bandwidth(series classes.Series) Finding {
	perSecond, used := j.values(j.victim, series), j.ofVictim(history.CPUUsed)
	for i := range perSecond {
		perSecond[i] /= max(used[i], leastCPU) // with less, the point does not count
	}
	return j.lost(Bandwidth, series, perSecond)
}

// cache judges the bytes of a cache that the victim occupies while it computes.
func (j *judge) cache(series classes.Series) Finding {
	return j.lost(Cache, series, j.values(j.victim, series))
}

// computes reports for each point whether the victim computed. A container that is idle needs neither bandwidth nor a cache.
func (j *judge) computes() []bool {
	used := j.ofVictim(history.CPUUsed)
	mean, _ := j.means(used, span{0, j.points})
	computes := make([]bool, j.points)
	for i := range used {
		computes[i] = used[i] >= max(leastCPU, mean/4)
	}
	return computes
}

// lost judges a value that falls when others use more of the same series. Only the points in which the victim computed count.
func (j *judge) lost(kind Kind, series classes.Series, values []float64) Finding {
	computes, most := j.computes(), 0.0
	for i, v := range values {
		if computes[i] {
			most = max(most, v)
		}
	}
	if most == 0 {
		return Finding{}
	}
	missing := make([]float64, len(values))
	for i, v := range values {
		if computes[i] {
			missing[i] = 1 - v/most
		}
	}
	s, ok := highest(missing, j.since)
	if !ok {
		return Finding{}
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
		return Finding{}
	}
	f := j.during(kind, values, s)
	f.During, _ = j.means(inside, span{0, len(inside)})
	f.Before, _ = j.means(outside, span{0, len(outside)})
	if f.During > (1-leastLoss)*f.Before {
		return Finding{}
	}
	f.Part = series.Part
	f.Culprits = j.culprits([]classes.Series{series}, missing, s)
	if len(f.Culprits) == 0 {
		return Finding{} // a container that does other work and uses less does not suffer
	}
	return f
}

// limited returns the limits of the classes of the victim and its pod that were reached in most of the interval. A use
// far above a limit shows that the container got the class later.
func (j *judge) limited(uses []classes.Series, s span) (own []Own) {
	for _, series := range uses {
		if limit, values := j.own.Container[series], j.values(j.victim, series); reached(values, s, limit) {
			during, before := j.means(values, s)
			own = append(own, Own{Reason: OwnClassLimit, Series: series, Before: before, During: during, Limit: limit})
		}
		if limit, values := j.own.Pod[series], j.inPod().sum(series); reached(values, s, limit) {
			during, before := j.means(values, s)
			own = append(own, Own{Reason: OwnClassLimit, Series: series, Before: before, During: during, Limit: limit, Pod: true})
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

// means returns the means of values inside and outside of an interval. If the interval is everything, both are equal.
func (j *judge) means(values []float64, s span) (during, before float64) {
	during, before = means(values, s)
	if s.len() == len(values) {
		before = during
	}
	return during, before
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
