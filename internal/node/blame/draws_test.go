// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blame_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/node/blame"
	"github.com/qos-nri/qos-nri-plugin/internal/node/history"
	"github.com/qos-nri/qos-nri-plugin/internal/reports"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
)

const (
	interval = 15 * time.Second
	samples  = 60
	all      = 12 // containers
)

// machine simulates 12 busy containers. Their use changes at random, and each waits for the use of the others.
type machine struct {
	random *rand.Rand
	now    time.Time
	totals [all]classes.Reading
	// load is the part of each resource that each container uses. It changes slowly. The bystanders also have bursts.
	load [all]map[reports.Kind]float64
	ring *history.Ring
	// slack is true if the containers hardly wait for each other, e.g. because a queue is still short.
	slack bool
}

// kinds are the resources that the draws are about.
func kinds() []reports.Kind {
	return []reports.Kind{reports.IO, reports.MemoryUse, reports.CPU, reports.Bandwidth, reports.Cache}
}

func newMachine(random *rand.Rand) *machine {
	m := &machine{random: random, now: time.Unix(1_000_000, 0), ring: history.NewRing(history.Budget)}
	for i := range all {
		m.totals[i], m.load[i] = classes.Reading{}, map[reports.Kind]float64{}
		for _, kind := range kinds() {
			m.load[i][kind] = 0.01 + 0.05*random.Float64()
		}
	}
	return m
}

// change is what happens in the interval of a draw.
type change struct {
	kind reports.Kind
	// `who` is the container that uses more of the resource. It is -1 if none does.
	who int
	// `waits` means that the victim also waits for a reason that no counter shows. `throttled` and `high` mean that it
	// reaches its CPU limit and its memory.high.
	waits, throttled, high bool
}

// step adds one sample.
func (m *machine) step(victim int, c *change) {
	seconds := interval.Seconds()
	m.now = m.now.Add(interval)
	used := [all]map[reports.Kind]float64{}
	sums := map[reports.Kind]float64{}
	for i := range all {
		used[i] = map[reports.Kind]float64{}
		for _, kind := range kinds() {
			m.load[i][kind] = min(0.08, max(0.005, m.load[i][kind]*(0.95+0.1*m.random.Float64())))
			used[i][kind] = m.load[i][kind] * (0.6 + 0.8*m.random.Float64())
			if i != victim && m.random.IntN(20) == 0 {
				used[i][kind] *= 2
			}
		}
		if c != nil && c.who == i {
			used[i][c.kind] += 0.6 + 0.4*m.random.Float64()
		}
		for _, kind := range kinds() {
			sums[kind] += used[i][kind]
		}
	}

	add := func(i int, measure, part string, value float64) {
		m.totals[i][classes.Series{Measure: measure, Part: part}] += value * seconds
	}
	set := func(i int, measure, part string, value float64) {
		m.totals[i][classes.Series{Measure: measure, Part: part}] = value
	}
	for i := range all {
		waits := func(kind reports.Kind) float64 {
			others := sums[kind] - used[i][kind]
			own := used[i][kind]
			wait := max(0, others+own-0.3)*0.6 + 0.02*m.random.Float64()
			if m.slack {
				wait *= 0.25
			}
			if c != nil && c.kind == kind && i == victim && c.waits {
				wait += 0.4
			}
			return min(1, wait)
		}
		throttled := 0.0
		if c != nil && i == victim && c.throttled {
			throttled = 0.4 + 0.2*m.random.Float64()
		}
		add(i, history.IOWaiting, "", waits(reports.IO))
		add(i, history.MemoryWaiting, "", waits(reports.MemoryUse))
		add(i, history.CPUWaiting, "", min(1, waits(reports.CPU)+throttled))
		add(i, history.Throttled, "", throttled)
		add(i, history.WrittenBytes, "sda", 1e9*used[i][reports.IO])
		add(i, history.Writes, "sda", 1e4*used[i][reports.IO])
		add(i, history.Reads, "sdb", 1e4*m.random.Float64()*m.load[i][reports.IO])
		add(i, history.ReadBytes, "sdb", 1e9*m.random.Float64()*m.load[i][reports.IO])
		set(i, history.Memory, "", 64e9*used[i][reports.MemoryUse])
		if c != nil && i == victim && c.high {
			add(i, history.HighEvents, "", 3)
		}
		cpu := used[i][reports.CPU] * 4
		add(i, history.CPUUsed, "", cpu)
		pressed := 1 / (1 + 2*max(0, sums[reports.Bandwidth]-used[i][reports.Bandwidth]-0.4))
		if c != nil && c.who == i {
			pressed = 1
		}
		add(i, history.Bandwidth, "0", 10e9*(used[i][reports.Bandwidth]*0.1+cpu*0.2)*pressed+1e10*max(0, used[i][reports.Bandwidth]-0.2))
		set(i, history.Occupancy, "0", 32e6*used[i][reports.Cache]/sums[reports.Cache])
	}

	var reads []history.Read
	for i := range all {
		reads = append(reads, history.Read{Container: reports.Container{ID: fmt.Sprint("c", i)}, Reading: m.totals[i]})
	}
	m.ring.Add(m.now, reads)
}

// draw runs a machine with the change in a random interval, and returns the findings about the victim.
func draw(random *rand.Rand, victim int, c *change) []reports.Finding {
	m := newMachine(random)
	length := 4 + random.IntN(14)
	from := 5 + random.IntN(samples-10-length)
	for i := range samples {
		if i >= from && i < from+length {
			m.step(victim, c)
		} else {
			m.step(victim, nil)
		}
	}
	w := m.ring.Window()
	return blame.Judge(&w, victim, blame.Limits{}, time.Time{})
}

// shortDraw is draw with a history of 14 points. The change takes five points, and in up to two of these, the containers
// hardly wait yet.
func shortDraw(random *rand.Rand, victim int, c *change) []reports.Finding {
	m := newMachine(random)
	slack := random.IntN(3)
	for i := range 15 {
		if happens := i >= 6 && i < 11; happens {
			m.slack = i < 6+slack
			m.step(victim, c)
		} else {
			m.slack = false
			m.step(victim, nil)
		}
	}
	w := m.ring.Window()
	return blame.Judge(&w, victim, blame.Limits{}, time.Time{})
}

// withoutCulprit returns a change in which nobody else uses more: one of the four below, or none.
func withoutCulprit(random *rand.Rand, victim int) *change {
	c := &change{kind: kinds()[random.IntN(3)], who: -1} // only for the first three kinds, the kernel counts the waiting
	switch random.IntN(5) {
	case 0:
		c.who = victim
	case 1:
		c.throttled = true
	case 2:
		c.kind, c.high, c.waits = reports.MemoryUse, true, true
	case 3:
		c.waits = true
	}
	return c
}

// named returns the first culprit in the findings, or "".
func named(findings []reports.Finding) string {
	for _, f := range findings {
		if len(f.Culprits) > 0 {
			return f.Culprits[0].ID
		}
	}
	return ""
}

// TestTheCulpritOfRandomDrawsStandsFirst draws a victim, a culprit and a resource 20 times for each of many seeds. Ten
// containers are bystanders. The culprit must stand first in 18 of 20 draws.
func TestTheCulpritOfRandomDrawsStandsFirst(t *testing.T) {
	const seeds, draws = 8, 20
	worst, sum := draws, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		first := 0
		for range draws {
			order := random.Perm(all)
			c := &change{kind: kinds()[random.IntN(len(kinds()))], who: order[1]}
			got := draw(random, order[0], c)
			if named(got) == fmt.Sprint("c", order[1]) {
				first++
			} else {
				t.Logf("seed %d: %s by c%d on c%d: %+v", seed, c.kind, order[1], order[0], got)
			}
		}
		worst, sum = min(worst, first), sum+first
		if first < 18 {
			t.Errorf("seed %d: the culprit stands first in %d of %d draws, want 18", seed, first, draws)
		}
	}
	t.Logf("the culprit stands first in %d of %d draws, and in at least %d of 20", sum, seeds*draws, worst)
}

// TestWithoutACulpritNoContainerIsNamed makes 20 draws without a culprit for each of many seeds: nothing happens, or the
// victim itself uses more, is throttled, reaches memory.high, or waits for a reason that no counter shows. At most 1 of
// 20 draws may name a culprit.
func TestWithoutACulpritNoContainerIsNamed(t *testing.T) {
	const seeds, draws = 8, 20
	most, sum := 0, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 2))
		wrong := 0
		for range draws {
			victim := random.IntN(all)
			c := withoutCulprit(random, victim)
			if got := draw(random, victim, c); named(got) != "" {
				wrong++
				t.Logf("seed %d: %+v on c%d: %+v", seed, c, victim, got)
			}
		}
		most, sum = max(most, wrong), sum+wrong
		if wrong > 1 {
			t.Errorf("seed %d: %d of %d draws without a culprit name one", seed, wrong, draws)
		}
	}
	t.Logf("%d of %d draws without a culprit name one, and at most %d of 20", sum, seeds*draws, most)
}

// TestAHistoryOf14PointsIsEnoughToFindTheCulprit makes draws with and without a culprit. The waiting begins after its
// cause.
func TestAHistoryOf14PointsIsEnoughToFindTheCulprit(t *testing.T) {
	const seeds, draws = 10, 20
	first, wrong := 0, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 3))
		for range draws {
			order := random.Perm(all)
			c := &change{kind: kinds()[random.IntN(3)], who: order[1]}
			if named(shortDraw(random, order[0], c)) == fmt.Sprint("c", order[1]) {
				first++
			}
			if named(shortDraw(random, order[0], withoutCulprit(random, order[0]))) != "" {
				wrong++
			}
		}
	}
	t.Logf("the culprit stands first in %d of %d draws; %d draws without a culprit name one", first, seeds*draws, wrong)
	if first*20 < seeds*draws*18 || wrong*20 > seeds*draws {
		t.Error("want that the culprit stands first in at least 18 of 20 draws, and that at most 1 of 20 without a culprit names one")
	}
}
