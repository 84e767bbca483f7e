// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

var (
	read    = classes.Series{Measure: history.ReadBytes, Part: "sda"}
	wrote   = classes.Series{Measure: history.WrittenBytes, Part: "sda"}
	onOther = classes.Series{Measure: history.WrittenBytes, Part: "sdb"}
)

// constant returns `n` equal values, and then `others`.
func constant(n int, value float64, others ...float64) []float64 {
	return append(slices.Repeat([]float64{value}, n), others...)
}

func held(n int, others ...bool) []bool { return append(slices.Repeat([]bool{true}, n), others...) }

func limit(series classes.Series, bound float64) recommend.Limit {
	return recommend.Limit{Name: "limit", Series: series, Bound: bound}
}

// ladder returns classes that limit writes, in no order, and one without a limit.
func ladder() []recommend.Class {
	return []recommend.Class{
		{Name: "large", Limits: []recommend.Limit{limit(wrote, 400)}}, {Name: "weight"},
		{Name: "small", Limits: []recommend.Limit{limit(wrote, 100)}}, {Name: "medium", Limits: []recommend.Limit{limit(wrote, 200)}},
	}
}

// TestTheSmallestClassWhoseLimitIsRarelyCloseIsRecommended recommends a class of `ladder`. A class fits if the use is above 70% of
// its limit in at most one of 20 points, or above 50% if the container has to move to a smaller class. The present class
// fits if its limit is reached in at most one of 20 points. If no class fits, the advice is to add one with twice the need,
// and at least twice the present limit if that was reached. The need is the value that is exceeded in less than one of 20
// points. If it is 0, the new limit is twice the highest value. New limits are rounded up to two digits.
func TestTheSmallestClassWhoseLimitIsRarelyCloseIsRecommended(t *testing.T) {
	for _, test := range []struct {
		name    string
		present string
		use     recommend.Use // of writes to sda, if it has no other series
		want    string        // the outcome, the class, and the bounds
		left    float64       // the part of the limit that the need leaves unused
		held    bool          // whether the present limit is reached too often
	}{
		{name: "below the smallest class", use: recommend.Use{Values: constant(20, 50)}, want: "fits small 100", left: 0.5},
		{name: "70% of the smallest class", use: recommend.Use{Values: constant(20, 70)}, want: "fits small 100", left: 0.3},
		{name: "71% of the smallest class", use: recommend.Use{Values: constant(20, 71)}, want: "fits medium 200", left: 1 - 71./200},
		{name: "a rare peak", use: recommend.Use{Values: constant(19, 50, 1000)}, want: "fits small 100", left: 0},
		{name: "two of 20 points", use: recommend.Use{Values: constant(18, 50, 120, 130)}, want: "fits medium 200", left: 1 - 130./200},
		{name: "more than the largest class", use: recommend.Use{Values: constant(20, 1010)}, want: "add  2100", left: 1 - 1010./2100},
		{name: "use of a disk that no class limits", use: recommend.Use{Series: onOther, Values: constant(20, 8)}, want: "add  16", left: 0.5},
		{name: "rare use of a disk that no class limits", use: recommend.Use{Series: onOther, Values: constant(39, 0, 8)}, want: "add  16", left: 1},
		{name: "no use", use: recommend.Use{Values: constant(20, 0)}, want: "unused "},
		{name: "only reads, which no class limits", use: recommend.Use{Series: read, Values: constant(20, 5)}, want: "unused "},
		{
			name: "the limit of the present class is reached", present: "small", use: recommend.Use{Values: constant(20, 99), Held: held(20)},
			want: "fits medium 200", left: 1 - 99./200, held: true,
		},
		{
			name: "the limit is reached with a low mean", present: "small", use: recommend.Use{Values: constant(20, 60), Held: held(20)},
			want: "fits medium 200", left: 0.7, held: true,
		},
		{
			name: "the limit is rarely reached", present: "small", use: recommend.Use{Values: constant(19, 50, 99), Held: append(make([]bool, 19), true)},
			want: "fits small 100", left: 0.01,
		},
		{
			name: "close to the limit of the present class, and never at it", present: "small", use: recommend.Use{Values: constant(20, 85), Held: make([]bool, 20)},
			want: "fits small 100", left: 0.15,
		},
		{
			name: "the limit of the largest class is reached", present: "large", use: recommend.Use{Values: constant(20, 399), Held: held(20)},
			want: "add  800", left: 1 - 399./800, held: true,
		},
		{
			name: "less than half of the limit of a smaller class", present: "large", use: recommend.Use{Values: constant(20, 20)},
			want: "fits small 100", left: 0.8,
		},
		{
			name: "more than half of the limit of a smaller class", present: "medium", use: recommend.Use{Values: constant(20, 60)},
			want: "fits medium 200", left: 0.7,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.use.Series == (classes.Series{}) {
				test.use.Series = wrote
			}
			got := recommend.Judge(&recommend.Demand{Present: test.present, Uses: []recommend.Use{test.use}, Classes: ladder()})
			if texts := outcome(got); texts != test.want || got.Held != test.held {
				t.Errorf("advice is %q, held %t; want %q\n%+v", texts, got.Held, test.want, got)
			}
			if math.Abs(got.Left-test.left) > 1e-9 {
				t.Errorf("the unused part of the limit is %v, want %v", got.Left, test.left)
			}
		})
	}
}

// outcome returns an advice as the outcome, the class and the bounds.
func outcome(a reports.Advice) string {
	words := []string{string(a.Outcome), a.Class}
	for _, f := range a.Figures {
		words = append(words, strconv.FormatFloat(f.Bound, 'f', -1, 64))
	}
	return strings.Join(words, " ")
}

// TestTheClassThatLeavesTheLeastUnusedIsRecommended has a container that writes and reads. A class without a limit of reads leaves
// them all unused, so "both" is better than "writes". Of classes that leave the same part unused, the one with the most limits is
// recommended, here with a limit on a disk that the container does not use.
func TestTheClassThatLeavesTheLeastUnusedIsRecommended(t *testing.T) {
	d := &recommend.Demand{
		Uses: []recommend.Use{{Series: wrote, Values: constant(20, 60)}, {Series: read, Values: constant(20, 10)}},
		Classes: []recommend.Class{
			{Name: "writes", Limits: []recommend.Limit{limit(wrote, 100)}},
			{Name: "both", Limits: []recommend.Limit{limit(wrote, 100), limit(read, 100)}},
			{Name: "too small", Limits: []recommend.Limit{limit(wrote, 100), limit(read, 5)}},
			{Name: "also another disk", Limits: []recommend.Limit{limit(wrote, 100), limit(read, 100), limit(onOther, 1)}},
		},
	}
	if got := recommend.Judge(d); got.Class != "also another disk" || math.Abs(got.Left-(0.4+0.9)/2) > 1e-9 {
		t.Errorf("advice is %+v, want that of the writes 40%% are left, and of the reads 90%%", got)
	}
}

// TestMemoryMayComeCloserToItsLimitThanARate has a use of memory of 85. It fits a limit of 100, because memory may use 90% of a limit; a rate
// may use 70%. A container in a larger class stays there, because only 80% of a lower limit are allowed.
func TestMemoryMayComeCloserToItsLimitThanARate(t *testing.T) {
	memory := classes.Series{Measure: history.Memory}
	for present, want := range map[string]string{"": "fits small 100", "large": "fits large 200"} {
		d := &recommend.Demand{
			Present: present, Uses: []recommend.Use{{Series: memory, Values: constant(20, 85)}},
			Classes: []recommend.Class{{Name: "small", Limits: []recommend.Limit{limit(memory, 100)}}, {Name: "large", Limits: []recommend.Limit{limit(memory, 200)}}},
		}
		if got := recommend.Judge(d); outcome(got) != want {
			t.Errorf("in class %q: %+v, want %s", present, got, want)
		}
	}
}

// TestAProposedMemoryLimitHasRoomForTheUse has a use of 85, which does not fit the limit of 90. The proposal is 1.25 times
// the use, rounded up to two digits. If the limit of 90 was reached, the use could be higher without it, so the proposal is
// twice this limit.
func TestAProposedMemoryLimitHasRoomForTheUse(t *testing.T) {
	memory := classes.Series{Measure: history.Memory}
	d := &recommend.Demand{Uses: []recommend.Use{{Series: memory, Values: constant(20, 85)}}, Classes: []recommend.Class{{Name: "c", Limits: []recommend.Limit{limit(memory, 90)}}}}
	if got := recommend.Judge(d); outcome(got) != "add  110" {
		t.Errorf("advice is %+v, want a limit of 110", got)
	}
	d.Present, d.Uses[0].Held = "c", held(20)
	if got := recommend.Judge(d); outcome(got) != "add  180" || !got.Held {
		t.Errorf("when the limit is reached, the advice is %+v, want a limit of 180", got)
	}
}

// TestContainersThatShareAClassShareItsLimit lets other containers use 80 of the limit of class crowded, which is 100. The container needs
// 20, so the sum is too close to the limit. If there is no other class, a new one with twice the need is proposed.
func TestContainersThatShareAClassShareItsLimit(t *testing.T) {
	crowded, empty := limit(wrote, 100), limit(wrote, 150)
	crowded.Others = constant(20, 80)
	d := &recommend.Demand{
		Uses:    []recommend.Use{{Series: wrote, Values: constant(20, 20)}},
		Classes: []recommend.Class{{Name: "crowded", Limits: []recommend.Limit{crowded}}, {Name: "empty", Limits: []recommend.Limit{empty}}},
	}
	if got := recommend.Judge(d); got.Class != "empty" || got.Figures[0].Need != 20 {
		t.Errorf("advice is %+v, want class empty for a need of 20", got)
	}
	d.Classes = d.Classes[:1]
	if got := recommend.Judge(d); outcome(got) != "add  40" { // the new class has no name
		t.Errorf("without the class empty, the advice is %+v, want a new class with a limit of 40", got)
	}
}

// TestUseOrWaitingOrTheKernelsCountShowsThatALimitIsReached: if the kernel counts how often the limit is reached, only this
// count matters. Otherwise, the limit is reached in the points with a use above 90% of it, or above 50% if the container waits
// for at least 20% of the time.
func TestUseOrWaitingOrTheKernelsCountShowsThatALimitIsReached(t *testing.T) {
	values := []float64{95, 60, 60, 40, 90}
	waited := []float64{0, 0.1, 0.2, 1, 0}
	for _, test := range []struct {
		name            string
		bound           float64
		reached, waited []float64
		want            []bool
	}{
		{"high use", 100, nil, nil, []bool{true, false, false, false, false}},
		{"half of the limit, and waiting", 100, nil, waited, []bool{true, false, true, false, false}},
		{"the kernel counts it", 100, []float64{0, 1, 0, 0, 0.5}, waited, []bool{false, true, false, false, true}},
		{"no limit", 0, nil, waited, make([]bool, 5)},
	} {
		if diff := cmp.Diff(test.want, recommend.HeldAt(values, test.bound, test.reached, test.waited)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// FuzzJudge checks that the recommended class fits, that a class is recommended if any fits, that the order of the
// classes does not matter, and that a proposed class fits after it is added.
func FuzzJudge(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := drawn(random)
		got := recommend.Judge(d)
		for _, figure := range got.Figures {
			if math.IsNaN(figure.Bound+figure.Need) || figure.Bound <= 0 || figure.Need > figure.Most {
				t.Errorf("figure %+v", figure)
			}
			if figure.Close > 0.05 {
				t.Errorf("comes close to its limit: %+v", figure)
			}
		}
		if math.IsNaN(got.Left) || got.Left < 0 || got.Left > 1 {
			t.Errorf("left over is %v", got.Left)
		}
		for _, c := range d.Classes {
			alone := *d
			alone.Classes = slices.DeleteFunc(slices.Clone(d.Classes), func(other recommend.Class) bool { return other.Name != c.Name && other.Name != d.Present })
			if one := recommend.Judge(&alone); one.Outcome == reports.Fits && got.Outcome != reports.Fits {
				t.Errorf("class %s fits, and the advice is %+v", one.Class, got)
			}
		}
		random.Shuffle(len(d.Classes), func(i, j int) { d.Classes[i], d.Classes[j] = d.Classes[j], d.Classes[i] })
		if again := recommend.Judge(d); again.Outcome != got.Outcome || again.Class != got.Class {
			t.Errorf("in another order: %+v, before %+v", again, got)
		}
		if got.Outcome == reports.Add {
			added := recommend.Class{Name: "added"}
			for _, figure := range got.Figures {
				added.Limits = append(added.Limits, recommend.Limit{Name: figure.Name, Series: figure.Series, Bound: figure.Bound})
			}
			d.Classes = append(d.Classes, added)
			if after := recommend.Judge(d); after.Class != "added" {
				t.Errorf("with the proposed class: %+v, before %+v", after, got)
			}
		}
	})
}

// drawn returns a random demand.
func drawn(random *rand.Rand) *recommend.Demand {
	points := 1 + random.IntN(40)
	d := &recommend.Demand{}
	for i := range random.IntN(5) {
		c := recommend.Class{Name: string(rune('a' + i))}
		for _, series := range []classes.Series{read, wrote} {
			if random.IntN(3) > 0 {
				c.Limits = append(c.Limits, limit(series, 1+random.Float64()*200))
			}
		}
		d.Classes = append(d.Classes, c)
	}
	if len(d.Classes) > 0 && random.IntN(2) == 0 {
		d.Present = d.Classes[0].Name
	}
	for _, series := range []classes.Series{read, wrote, onOther} {
		u := recommend.Use{Series: series, Values: make([]float64, points)}
		for i := range u.Values {
			u.Values[i] = random.Float64() * random.Float64() * 200
		}
		for _, c := range d.Classes {
			for _, l := range c.Limits {
				if c.Name == d.Present && l.Series == series {
					u.Held = recommend.HeldAt(u.Values, l.Bound, nil, nil)
				}
			}
		}
		d.Uses = append(d.Uses, u)
	}
	return d
}
