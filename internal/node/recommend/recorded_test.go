// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/node/recommend"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/internal/tables"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

// trial is a run of a workload with the limit `bound`, or without a limit if `bound` is 0. For each point, `values` has
// the use, and `waited` the part of the time in which the workload waited.
type trial struct {
	bound          float64
	values, waited []float64
}

// recording has the runs of a workload that test/lab/demand has recorded: `free` without a limit, and one of `trials`
// for each class, the smallest first.
type recording struct {
	name   string
	series classes.Series
	free   trial
	trials []trial
}

// recordings reads the recorded workloads.
func recordings(t *testing.T) (all []recording) {
	t.Helper()
	data, err := os.ReadFile("testdata/series.txt")
	if err != nil {
		t.Fatal(err)
	}
	measures := map[string]string{
		"read-bytes": history.ReadBytes, "written-bytes": history.WrittenBytes, "reads": history.Reads, "writes": history.Writes,
	}
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case words[0] == "workload":
			all = append(all, recording{name: words[1], series: classes.Series{Measure: measures[words[2]], Part: "loop"}})
		default:
			r := &all[len(all)-1]
			if one := trialOf(t, words); one.bound == 0 {
				r.free = one
			} else {
				r.trials = append(r.trials, one)
			}
		}
	}
	return all
}

func trialOf(t *testing.T, words []string) (one trial) {
	t.Helper()
	number := func(text string) float64 {
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	one.bound = number(words[0])
	for _, word := range words[1:] {
		value, waited, waits := strings.Cut(word, "/")
		one.values, one.waited = append(one.values, number(value)), append(one.waited, 0)
		if waits {
			one.waited[len(one.waited)-1] = number(waited) / 100
		}
	}
	return one
}

// reached returns the part of the points in which the limit of a trial was reached.
func (one *trial) reached() float64 {
	n := 0
	for _, held := range one.held() {
		if held {
			n++
		}
	}
	return float64(n) / float64(len(one.values))
}

func (one *trial) held() []bool { return recommend.HeldAt(one.values, one.bound, nil, one.waited) }

// best returns the index of the smallest class whose limit was rarely reached. It is the number of classes if there is none.
func (r *recording) best() int {
	if at := slices.IndexFunc(r.trials, func(one trial) bool { return one.reached() <= 0.05 }); at >= 0 {
		return at
	}
	return len(r.trials)
}

// recommended returns the advice for the use in a trial, and the index of its class.
func (r *recording) recommended(one *trial) (int, reports.Advice) {
	d := &recommend.Demand{Uses: []recommend.Use{{Series: r.series, Values: one.values}}}
	for i, class := range r.trials {
		d.Classes = append(d.Classes, recommend.Class{
			Name: fmt.Sprint(i), Limits: []recommend.Limit{{Name: r.series.Measure, Series: r.series, Bound: class.bound}},
		})
	}
	if one.bound > 0 {
		d.Present = fmt.Sprint(slices.IndexFunc(r.trials, func(class trial) bool { return class.bound == one.bound }))
		d.Uses[0].Held = one.held()
	}
	got := recommend.Judge(d)
	if at, err := strconv.Atoi(got.Class); err == nil {
		return at, got
	}
	return len(r.trials), got
}

// leastGood is the number of the 30 recordings for which the recommended class must be the best one or the next to it.
const leastGood = 27

func within(one, other int) bool { return max(one, other)-min(one, other) <= 1 }

// bound formats the bound of a class.
func (r *recording) bound(class int) string {
	if class == len(r.trials) {
		return "more"
	}
	return tables.Decimal(r.trials[class].bound)
}

// TestTheRecommendedClassIsWithinOneStepOfTheBestClass recommends a class for the use without a limit. The best class
// is the smallest one whose limit the workload rarely reached when it ran with that limit. At least leastGood of the 30
// recordings must pass, also if only the first half of the use is known.
func TestTheRecommendedClassIsWithinOneStepOfTheBestClass(t *testing.T) {
	all := recordings(t)
	good, same, early, earlySame := 0, 0, 0, 0
	rows := [][]string{{"WORKLOAD", "LIMITS", "NEED", "RECOMMENDED", "BEST BY TRIAL", "FROM THE FIRST HALF"}}
	for _, r := range all {
		best := r.best()
		got, advice := r.recommended(&r.free)
		half := r.free
		half.values = half.values[:len(half.values)/2]
		first, _ := r.recommended(&half)
		count(&good, within(got, best))
		count(&same, got == best)
		count(&early, within(first, best))
		count(&earlySame, first == best)
		rows = append(rows, []string{r.name, r.series.Measure, tables.Decimal(advice.Figures[0].Need), r.bound(got), r.bound(best), r.bound(first)})
	}
	t.Logf("\n%swithin one step: %d of %d, the same: %d; from the first half: %d, the same: %d", tables.Align(rows, "", 6, 3), good, len(all), same, early, earlySame)
	if len(all) != 30 || good < leastGood || early < leastGood {
		t.Errorf("%d of %d are within one step of the best, and %d from the first half; want %d of 30", good, len(all), early, leastGood)
	}
}

// TestFollowingTheRecommendationsEndsWithinOneStepOfTheBestClass runs each workload in the smallest class first, and
// then in each class that is recommended.
func TestFollowingTheRecommendationsEndsWithinOneStepOfTheBestClass(t *testing.T) {
	all := recordings(t)
	good, same, most, held := 0, 0, 0, 0
	for _, r := range all {
		class, steps := 0, 0
		for {
			next, advice := r.recommended(&r.trials[class])
			if steps == 0 {
				count(&held, advice.Held)
			}
			if steps == len(r.trials) {
				t.Fatalf("%s: the recommendation goes to and fro, now from class %d to %d", r.name, class, next)
			}
			if next == class || next == len(r.trials) { // len(r.trials) means that no class fits
				class = next
				break
			}
			class, steps = next, steps+1
		}
		count(&good, within(class, r.best()))
		count(&same, class == r.best())
		most = max(most, steps)
	}
	t.Logf("within one step after at most %d changes: %d of %d, the same: %d; held by the smallest class: %d", most, good, len(all), same, held)
	if good < leastGood {
		t.Errorf("%d of %d end within one step of the best, want %d", good, len(all), leastGood)
	}
}

func count(n *int, is bool) {
	if is {
		*n++
	}
}
