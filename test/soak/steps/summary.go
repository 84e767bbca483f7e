// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// warmUp is the number of rounds before memory is measured for the first time.
const warmUp = 5

// These are the permitted increases of resources between the end of the warm-up and the end of the soak.
const (
	moreGoroutines  = 10
	moreDescriptors = 10
	moreMemory      = 16 << 10 // KiB
)

// keptOperations is the number of the last operations that are printed after a violation.
const keptOperations = 60

// Summary counts operations and their outcomes.
type Summary struct {
	seed                uint64
	round, step, checks int
	// `kills` counts the kills that happened. A planned kill does not happen if the plugin does not write often enough.
	kills   int
	took    time.Duration
	actions map[string]*tally
	reasons map[string]int
	// `unknown` has each failure whose reason is not known.
	unknown    map[string]bool
	settled    []time.Duration
	violations []string
	last       []string
	// armed is true if a kill of the plugin is planned in the current round.
	armed bool
	// `monitored` has the monitoring groups, by name, that existed after a round. There is one for each container.
	// `notAll` is the number of rounds after which the plugin reported that it could not monitor all containers.
	monitored map[string]bool
	notAll    int
	warm, end resources
}

// tally counts the outcomes of an action.
type tally struct{ done, failed int }

// resources has the resources that this process uses.
type resources struct {
	goroutines, descriptors int
	memory                  int // KiB in use
}

func newSummary(seed uint64) *Summary {
	return &Summary{seed: seed, actions: map[string]*tally{}, reasons: map[string]int{}, unknown: map[string]bool{}, monitored: map[string]bool{}}
}

// done counts an operation, and returns a line about it.
func (s *Summary) done(d *operation, err error) string {
	t := s.actions[d.action]
	if t == nil {
		t = &tally{}
		s.actions[d.action] = t
	}

	outcome := "done"
	if err == nil {
		t.done++
	} else {
		t.failed++
		reason := reasonOf(err)
		s.reasons[reason]++
		outcome = strings.ReplaceAll(err.Error(), "\n", "; ")
		if reason == other && len(s.unknown) < 10 {
			s.unknown[d.action+": "+outcome[:min(len(outcome), 300)]] = true
		}
	}

	s.armed = s.armed || strings.HasPrefix(d.action, "kill")
	line := fmt.Sprintf("round %d step %d: %s %s -> %s", s.round, s.step, d.action, d.what, outcome[:min(len(outcome), 500)])
	s.last = append(s.last, line)
	s.last = s.last[max(0, len(s.last)-keptOperations):]
	return line
}

// killed reports whether a kill was planned since the last call of killed, whether or not the kill has happened.
func (s *Summary) killed() bool {
	was := s.armed
	s.armed = false
	return was
}

func (s *Summary) progress(since time.Duration) string {
	operations := 0
	for _, t := range s.actions {
		operations += t.done + t.failed
	}
	return fmt.Sprintf("%s: %d rounds, %d operations, %d kills, %d checks, %d violations",
		since.Round(time.Second), s.round, operations, s.kills, s.checks, len(s.violations))
}

// String returns the table of the operations.
func (s *Summary) String() string {
	rows := [][]string{{"ACTION", "DONE", "REFUSED OR FAILED"}}
	for _, action := range slices.Sorted(maps.Keys(s.actions)) {
		t := s.actions[action]
		rows = append(rows, []string{action, fmt.Sprint(t.done), fmt.Sprint(t.failed)})
	}

	rows = append(rows, []string{}, []string{"REASON", "TIMES"})
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		rows = append(rows, []string{reason, fmt.Sprint(s.reasons[reason])})
	}

	slices.Sort(s.settled)
	rows = append(rows, []string{}, []string{"MEASURE", "AFTER THE FIRST ROUNDS", "AT THE END", "MOST"})
	for _, m := range s.measures() {
		rows = append(rows, []string{m.name, fmt.Sprint(m.warm), fmt.Sprint(m.end), fmt.Sprint(m.warm + m.more)})
	}

	var text strings.Builder
	aligned := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}

	_ = aligned.Flush() // writing to a strings.Builder cannot fail
	fmt.Fprintf(&text, "\nseed %d, %s\n", s.seed, s.progress(s.took))
	if n := len(s.settled); n > 0 {
		fmt.Fprintf(&text, "settled after a round: median %s, maximum %s\n",
			s.settled[n/2].Round(time.Millisecond), s.settled[n-1].Round(time.Millisecond))
	}

	fmt.Fprintf(&text, "containers monitored after a round: %d; not all monitored after %d rounds\n", len(s.monitored), s.notAll)
	for _, failure := range slices.Sorted(maps.Keys(s.unknown)) {
		fmt.Fprintf(&text, "other: %s\n", failure)
	}

	if len(s.violations) > 0 {
		fmt.Fprintf(&text, "\nThe last operations, with seed %d:\n%s\n\nViolations:\n%s\n", s.seed,
			strings.Join(s.last, "\n"), strings.Join(s.violations, "\n"))
	}

	return text.String()
}

// measure is the use of a resource after the warm-up and at the end, and the permitted increase.
type measure struct {
	name            string
	warm, end, more int
}

func (s *Summary) measures() []measure {
	return []measure{
		{"goroutines", s.warm.goroutines, s.end.goroutines, moreGoroutines},
		{"descriptors", s.warm.descriptors, s.end.descriptors, moreDescriptors},
		{"memory, KiB", s.warm.memory, s.end.memory, moreMemory},
	}
}

// measure removes all pods, waits until the node is settled, and checks that no monitoring group of the plugin is left.
// A plugin that has started with a wrong class file removes no groups, so measure replaces a wrong class file. Then it
// measures the resources of this process.
func (s *Soak) measure(ctx context.Context, into *resources) error {
	clear(s.busy)
	for len(s.pods) > 0 {
		if err := s.perform(ctx, []*operation{s.endPod()}); err != nil {
			return err
		}
	}

	if err := s.correct(ctx); err != nil {
		return err
	}

	if err := s.settle(ctx); err != nil {
		return err
	}

	if err := s.unmonitored(); err != nil {
		return err
	}

	runtime.GC()
	runtime.GC() // the second run frees memory that finalizers have released
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count descriptors: %w", err)
	}

	*into = resources{goroutines: runtime.NumGoroutine(), descriptors: len(descriptors), memory: int(memory.HeapAlloc >> 10)}
	return nil
}

// grown returns ErrViolated if the use of a resource has grown too much.
func (s *Summary) grown() error {
	if s.warm == (resources{}) {
		return nil // the soak ended before the first measurement
	}

	var wrong []string
	for _, m := range s.measures() {
		if m.end > m.warm+m.more {
			wrong = append(wrong, fmt.Sprintf("the use of %s grew from %d to %d", m.name, m.warm, m.end))
		}
	}

	s.violations = append(s.violations, wrong...)
	if len(wrong) > 0 {
		return errors.Join(ErrViolated, errors.New(strings.Join(wrong, "; ")))
	}

	return nil
}
