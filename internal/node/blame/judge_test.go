// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

func of(measure, part string) classes.Series { return classes.Series{Measure: measure, Part: part} }

// step returns 20 values: `high` from point 10 to 14, and `low` at the other points.
func step(low, high float32) []float32 {
	values := make([]float32, 20)
	for i := range values {
		values[i] = low
		if i >= 10 && i < 15 {
			values[i] = high
		}
	}
	return values
}

// window returns a window of 20 points of 15 s. The containers are named a, b, c, and a is the victim.
func window(of ...map[classes.Series][]float32) history.Window {
	w := history.Window{}
	for i := range 21 {
		w.Times = append(w.Times, time.Unix(int64(15*i), 0))
	}
	for i, values := range of {
		id := string(rune('a' + i))
		w.Tracks = append(w.Tracks, history.Track{Container: reports.Container{ID: id}, Values: values, From: 0, To: 20})
	}
	return w
}

type (
	uses   = map[classes.Series][]float32
	limits = map[classes.Series]float64
)

// result is a finding without its figures.
type result struct {
	Kind     reports.Kind
	Own      []reports.OwnReason
	Culprits string // their names, the most likely one first
	Always   bool
}

type judgement struct {
	name       string
	containers []uses // the victim first
	own        limits // of the victim's class
	want       []result
}

// wantJudged compares the findings about the victim. Those that are not there always are from 150 s to 225 s, as in step.
func wantJudged(t *testing.T, judgements []judgement) {
	t.Helper()
	for _, test := range judgements {
		t.Run(test.name, func(t *testing.T) {
			w := window(test.containers...)
			var got []result
			for _, f := range blame.Judge(&w, 0, blame.Limits{Container: test.own}, time.Time{}) {
				r := result{Kind: f.Kind, Always: f.Always}
				for _, own := range f.Own {
					r.Own = append(r.Own, own.Reason)
				}
				for _, c := range f.Culprits {
					r.Culprits += c.ID
				}
				got = append(got, r)
				if !f.Always && (f.From != time.Unix(150, 0) || f.To != time.Unix(225, 0)) {
					t.Errorf("the interval is from %s to %s, want from 150 s to 225 s", f.From, f.To)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestWaitingForIOHasCulpritsOrAReasonOfTheVictimItself: culprits are the containers that use more of the same disk. If the victim
// itself uses more or has reached a limit, this is reported instead.
func TestWaitingForIOHasCulpritsOrAReasonOfTheVictimItself(t *testing.T) {
	io, written, wrote := of(history.IOWaiting, ""), of(history.WrittenBytes, "sda"), of(history.Writes, "sda")
	wantJudged(t, []judgement{
		{name: "nothing happens", containers: []uses{{io: step(0.1, 0.1), wrote: step(1, 1)}, {wrote: step(5, 5)}}},
		{
			name:       "a neighbour writes more to the same disk",
			containers: []uses{{io: step(0, 0.6), wrote: step(1, 1)}, {wrote: step(5, 500)}},
			want:       []result{{Kind: reports.IO, Culprits: "b"}},
		},
		{
			name:       "two neighbours write more",
			containers: []uses{{io: step(0, 0.6), wrote: step(1, 1)}, {wrote: step(5, 300)}, {wrote: step(5, 800)}},
			want:       []result{{Kind: reports.IO, Culprits: "cb"}},
		},
		{
			name:       "a neighbour writes more to another disk",
			containers: []uses{{io: step(0, 0.6), wrote: step(1, 1)}, {of(history.Writes, "sdb"): step(5, 500)}},
			want:       []result{{Kind: reports.IO}},
		},
		{
			name: "a neighbour writes less", containers: []uses{{io: step(0, 0.6), wrote: step(1, 1)}, {wrote: step(500, 5)}},
			want: []result{{Kind: reports.IO}},
		},
		{
			name: "the victim itself writes more", containers: []uses{{io: step(0, 0.6), wrote: step(1, 900)}, {wrote: step(5, 5)}},
			want: []result{{Kind: reports.IO, Own: []reports.OwnReason{reports.OwnUse}}},
		},
		{
			name:       "the victim is at the limit of its class",
			containers: []uses{{io: step(0, 0.6), wrote: step(1, 9), written: step(1, 99)}, {wrote: step(5, 500)}},
			own:        limits{written: 100}, want: []result{{Kind: reports.IO, Own: []reports.OwnReason{reports.OwnClassLimit}}},
		},
		{
			name: "the victim is at its limit on a device mapper, and a neighbour writes more to the disk below",
			containers: []uses{
				{io: step(0, 0.6), wrote: step(1, 9), of(history.Writes, "dm-0"): step(1, 9), of(history.WrittenBytes, "dm-0"): step(1, 99)},
				{wrote: step(5, 500)},
			},
			own:  limits{of(history.WrittenBytes, "dm-0"): 100},
			want: []result{{Kind: reports.IO, Own: []reports.OwnReason{reports.OwnClassLimit}}},
		},
		{
			name:       "the victim used far more than the limit, so it got its class later",
			containers: []uses{{io: step(0, 0.6), wrote: step(1, 1), written: step(400, 400)}, {wrote: step(5, 500)}},
			own:        limits{written: 100}, want: []result{{Kind: reports.IO, Culprits: "b"}},
		},
	})
}

func TestWaitingForACPUHasCulpritsOrAReasonOfTheVictimItself(t *testing.T) {
	cpu, used, throttled := of(history.CPUWaiting, ""), of(history.CPUUsed, ""), of(history.Throttled, "")
	wantJudged(t, []judgement{
		{
			name:       "the victim is throttled",
			containers: []uses{{cpu: step(0, 0.6), throttled: step(0, 0.55)}, {used: step(1, 9)}},
			want:       []result{{Kind: reports.CPU, Own: []reports.OwnReason{reports.OwnThrottled}}},
		},
		{
			name:       "the victim is throttled all the time",
			containers: []uses{{cpu: step(0.9, 0.9), throttled: step(0.9, 0.9)}, {used: step(1, 9)}},
			want:       []result{{Kind: reports.CPU, Own: []reports.OwnReason{reports.OwnThrottled}, Always: true}},
		},
		{
			name:       "a neighbour computes more",
			containers: []uses{{cpu: step(0, 0.6), used: step(1, 1)}, {used: step(1, 9)}},
			want:       []result{{Kind: reports.CPU, Culprits: "b"}},
		},
	})
}

func TestWaitingForMemoryHasCulpritsOrAReasonOfTheVictimItself(t *testing.T) {
	memory, bytes, refaults := of(history.MemoryWaiting, ""), of(history.Memory, ""), of(history.Refaults, "")
	wantJudged(t, []judgement{
		{
			name:       "the victim is at its memory.high",
			containers: []uses{{memory: step(0, 0.6), of(history.HighEvents, ""): step(0, 9)}, {bytes: step(1e9, 9e9)}},
			want:       []result{{Kind: reports.MemoryUse, Own: []reports.OwnReason{reports.OwnMemoryLimit}}},
		},
		{
			name:       "a neighbour takes memory",
			containers: []uses{{memory: step(0, 0.6), bytes: step(1e9, 9e8)}, {bytes: step(1e9, 9e9)}},
			want:       []result{{Kind: reports.MemoryUse, Culprits: "b"}},
		},
		{
			name: "a neighbour takes memory, and a third container waits for it, too",
			containers: []uses{
				{memory: step(0, 0.6), bytes: step(1e9, 9e8)}, {bytes: step(1e9, 9e9)},
				{refaults: step(0, 5e4)},
			},
			want: []result{{Kind: reports.MemoryUse, Culprits: "b"}},
		},
		{
			name:       "a neighbour has refaults, and nobody takes more memory",
			containers: []uses{{memory: step(0, 0.6)}, {refaults: step(0, 5e4)}},
			want:       []result{{Kind: reports.MemoryUse, Culprits: "b"}},
		},
	})
}

// TestALossOfBandwidthOrCacheHasCulprits: the kernel does not count how long a container waits for these.
func TestALossOfBandwidthOrCacheHasCulprits(t *testing.T) {
	used, bandwidth := of(history.CPUUsed, ""), of(history.Bandwidth, "0")
	wantJudged(t, []judgement{
		{
			name:       "a neighbour takes memory bandwidth",
			containers: []uses{{used: step(1, 1), bandwidth: step(4e9, 1e9)}, {bandwidth: step(1e9, 9e9)}},
			want:       []result{{Kind: reports.Bandwidth, Culprits: "b"}},
		},
		{
			name:       "the victim computes less, and so transfers less",
			containers: []uses{{used: step(1, 0.25), bandwidth: step(4e9, 1e9)}, {bandwidth: step(1e9, 9e9)}},
		},
		{
			name: "the victim is idle, and so needs neither bandwidth nor cache",
			containers: []uses{
				{used: step(1, 0), bandwidth: step(4e9, 0), of(history.Occupancy, "0"): step(9e6, 0)},
				{bandwidth: step(1e9, 9e9), of(history.Occupancy, "0"): step(1e6, 8e6)},
			},
		},
		{
			name:       "the CPU time of the victim is not known",
			containers: []uses{{bandwidth: step(4e9, 1e9)}, {bandwidth: step(1e9, 9e9)}},
		},
		{
			name:       "a neighbour takes the cache",
			containers: []uses{{used: step(1, 1), of(history.Occupancy, "1"): step(9e6, 3e6)}, {of(history.Occupancy, "1"): step(1e6, 8e6)}},
			want:       []result{{Kind: reports.Cache, Culprits: "b"}},
		},
		{
			name:       "a neighbour takes another cache",
			containers: []uses{{used: step(1, 1), of(history.Occupancy, "1"): step(9e6, 3e6)}, {of(history.Occupancy, "0"): step(1e6, 8e6)}},
		},
	})
}

// TestAnOldIntervalIsLeftOut asks for intervals that end after a time. The only one ends at 225 s.
func TestAnOldIntervalIsLeftOut(t *testing.T) {
	w := window(uses{of(history.IOWaiting, ""): step(0, 0.6), of(history.Writes, "sda"): step(1, 1)}, uses{of(history.Writes, "sda"): step(5, 500)})
	if got := blame.Judge(&w, 0, blame.Limits{}, time.Unix(270, 0)); len(got) != 0 {
		t.Errorf("of the intervals that end after 270 s, got %+v, want none", got)
	}
	if got := blame.Judge(&w, 0, blame.Limits{}, time.Unix(200, 0)); len(got) != 1 {
		t.Errorf("of the intervals that end after 200 s, got %+v, want one", got)
	}
}

// TestTheSmallestChangeThatHelpsIsSuggested has a culprit whose use rises from 20 to 380. A limit of 200 or less removes half
// of the rise.
func TestTheSmallestChangeThatHelpsIsSuggested(t *testing.T) {
	use := of(history.WrittenBytes, "sda")
	culprit := reports.Culprit{Use: reports.Use{Series: use, Before: 20, During: 380}}
	offer := func(class string, bound float64) reports.Offer {
		return reports.Offer{Class: class, Series: use, Bound: bound}
	}
	other := reports.Offer{Class: "other", Series: of(history.ReadBytes, "sda"), Bound: 100}
	for _, test := range []struct {
		name   string
		offers []reports.Offer
		want   string
	}{
		{"no class", nil, ""},
		{"the highest limit that removes half of the rise", []reports.Offer{offer("slow", 10), offer("fast", 300), other, offer("medium", 190)}, "medium"},
		{"the lowest limit if none removes half", []reports.Offer{offer("faster", 370), offer("fast", 300)}, "fast"},
		{"nothing, if no limit is below the use", []reports.Offer{offer("fastest", 400), other, offer("unknown", 0)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if s := blame.Suggest(&culprit, test.offers); s != nil {
				got = s.Class
			}
			if got != test.want {
				t.Errorf("class %q is suggested, want %q", got, test.want)
			}
		})
	}
}

// FuzzJudge judges windows of any values. A culprit is always another container that uses more.
func FuzzJudge(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 210, 220, 1, 2, 3, 0, 0, 0, 9, 9, 9})
	f.Fuzz(func(t *testing.T, draws []byte) {
		names := []classes.Series{
			of(history.IOWaiting, ""), of(history.Writes, "sda"), of(history.CPUWaiting, ""), of(history.Throttled, ""), of(history.CPUUsed, ""),
			of(history.Occupancy, "0"), of(history.Bandwidth, "0"), of(history.Memory, ""), of(history.MemoryWaiting, ""),
		}
		var containers []uses
		for i, draw := range draws {
			if i%(20*len(names)) == 0 {
				containers = append(containers, uses{})
			}
			c, series := containers[len(containers)-1], names[i%len(names)]
			if c[series] == nil {
				c[series] = make([]float32, 20)
			}
			c[series][i/len(names)%20] = float32(draw) / 100
		}
		if len(containers) == 0 {
			return
		}
		w := window(containers...)
		for _, finding := range blame.Judge(&w, 0, blame.Limits{}, time.Time{}) {
			if !finding.From.Before(finding.To) {
				t.Errorf("the interval of %+v is empty", finding)
			}
			for _, c := range finding.Culprits {
				if c.ID == "a" || c.Share <= 0 || c.Share > 1.0001 || c.Correlation > 1.0001 || c.During <= c.Before {
					t.Errorf("the culprit %+v does not fit", c)
				}
			}
		}
	})
}
