// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// Options of a soak.
type Options struct {
	// Seed determines the operations. The order in which concurrent operations take effect depends on the machine.
	Seed uint64
	// `For` is the duration of the soak. Rounds is the maximum number of rounds, if it is not 0.
	For    time.Duration
	Rounds int
	// Steps is the number of steps in a round, after which the invariants are checked.
	Steps int
	// Patience is the longest time that the node may take to settle after a round.
	Patience time.Duration
	// Ignore, if set, reports whether a violation is already known and does not count.
	Ignore func(violation string) bool
	// Sabotage is true if the soak also removes disks, and changes the plugin's groups and limits in the kernel.
	Sabotage bool
	// Out gets a line every Progress.
	Out      io.Writer
	Progress time.Duration
	// Operations, if set, gets a line for every operation.
	Operations io.Writer
}

// ErrViolated means that an invariant was violated.
var ErrViolated = errors.New("an invariant is violated")

// operationTime is the maximum duration of one operation. A longer operation counts as a violation, because the runtime hangs. The limit
// is high, because a burst of creations takes minutes in a VM on a busy host.
const operationTime = 5 * time.Minute

// Soak is a soak test of a node.
type Soak struct {
	site    Site
	options Options
	random  *rand.Rand
	summary *Summary

	// The fields below are the model of the node. One goroutine reads and writes them. Concurrent operations use only their
	// own pods and containers.
	pods   []*pod
	made   int
	busy   map[*pod]bool
	file   classFile         // the class file that was written last
	files  int               // the number of class files written so far
	known  map[int]classFile // by number
	before map[string]string // the foreign groups and files when they were last recorded
	// foreignChanged is true if the foreign groups must be recorded (again) in `before`: at the beginning, and
	// after the soak has changed them.
	foreignChanged bool
	// calm is true if only pods and containers have changed since the node was settled. While it is true, an operation
	// may fail only for a permitted reason.
	calm bool
	// sabotaged is the time of the last sabotage. `restarted` is the time of the runtime's last restart.
	sabotaged, restarted time.Time
	seen                 seen
	began                time.Time
}

// Run tests a site until the time is over, `ctx` ends, or an invariant is violated. It returns ErrViolated for a
// violation. After a soak without a violation, all pods are removed, and only the plugin runs.
func Run(ctx context.Context, site Site, o Options) (*Summary, error) {
	s := &Soak{
		site: site, options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), summary: newSummary(o.Seed),
		busy: map[*pod]bool{}, known: map[int]classFile{}, began: time.Now(), seen: seen{most: map[invariant.Class]uint64{}},
	}

	s.file = firstClassFile()
	s.files, s.known[s.file.number] = s.file.number, s.file
	// An interrupt only prevents new rounds.
	work := context.WithoutCancel(ctx)
	err := s.begin(work)
	progress := time.NewTicker(o.Progress)
	defer progress.Stop()
	for round := 1; err == nil && !s.over(ctx, round); round++ {
		err = s.round(work, round)
		if round == warmUp && err == nil {
			err = s.measure(work, &s.summary.warm)
		}
		select {
		case <-progress.C:
			fmt.Fprintln(o.Out, s.summary.progress(time.Since(s.began)))
		default:
		}
	}
	if err == nil {
		err = s.measure(work, &s.summary.end)
	}
	if err == nil {
		err = errors.Join(s.summary.grown(), s.summary.idle())
	}

	s.summary.took = time.Since(s.began)
	return s.summary, err
}

func (s *Soak) over(ctx context.Context, round int) bool {
	// The time limit ends the soak only after warmUp rounds, because the method `grown` compares the use of memory after
	// these rounds with the use at the end.
	return ctx.Err() != nil || time.Since(s.began) > s.options.For && round > warmUp || s.options.Rounds > 0 && round > s.options.Rounds
}

func (s *Soak) begin(ctx context.Context) error {
	if err := s.site.WriteClasses(s.file.text()); err != nil {
		return err
	}
	if err := s.site.StartPlugin(ctx); err != nil {
		return err
	}
	s.foreignChanged = true
	return s.settle(ctx)
}

// round does the operations of some steps, and then checks the invariants. A third of the rounds use only the actions
// of the function `life`. The other rounds also use those of `trouble`, e.g. kills of the plugin.
func (s *Soak) round(ctx context.Context, number int) error {
	s.summary.round, s.summary.step = number, 0
	actions := life()
	if s.random.IntN(3) > 0 {
		actions = append(actions, s.trouble()...)
	}

	if s.file.wrong != "" && s.random.IntN(2) == 0 { // otherwise, the class file stays wrong until a random action replaces it
		if err := s.correct(ctx); err != nil {
			return err
		}
	}

	for range s.options.Steps {
		s.summary.step++
		if err := s.take(ctx, actions); err != nil {
			return err
		}
	}

	return s.settle(ctx)
}

// correct replaces a wrong class file.
func (s *Soak) correct(ctx context.Context) error {
	if s.file.wrong == "" {
		return nil
	}
	s.calm = false
	return s.perform(ctx, []*operation{s.reload()})
}

// take does the operations of one step: one operation or, in a quarter of the steps, several concurrently.
func (s *Soak) take(ctx context.Context, actions []action) error {
	clear(s.busy)
	switch s.random.IntN(16) {
	case 0, 1, 2:
		return s.perform(ctx, s.several(actions, 2+s.random.IntN(9)))
	case 3:
		return s.perform(ctx, s.burst(4+s.random.IntN(8)))
	}
	return s.perform(ctx, s.several(actions, 1))
}

// several plans at most `many` operations to do concurrently. If `many` is above 1, it skips actions that are never
// concurrent.
func (s *Soak) several(actions []action, many int) []*operation {
	var operations []*operation
	for range many {
		a := choose(s.random, actions)
		if (a.alone || a.trouble) && many > 1 {
			continue
		}
		d := a.plan(s)
		if d == nil {
			continue
		}
		operations = append(operations, d)
		s.busy[d.touches] = true
		s.calm = s.calm && !a.trouble
	}

	return operations
}

// burst returns `many` operations that run pods with the same request.
func (s *Soak) burst(many int) []*operation {
	a := newBoundedRequest(s.random)
	var operations []*operation
	for range min(many, mostPods-len(s.pods)) {
		operations = append(operations, s.newPodRequesting(a))
	}
	return operations
}

// perform does operations concurrently, and checks their outcomes.
func (s *Soak) perform(ctx context.Context, operations []*operation) error {
	calm, ran := s.calm, s.pluginRuns()
	outcomes := make([]error, len(operations))
	var all sync.WaitGroup
	for i, d := range operations {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, operationTime)
			defer cancel()
			outcomes[i] = d.do(ctx)
		})
	}

	all.Wait()
	if ran && s.summary.armed && !s.pluginRuns() && !ofKind(operations, "stop") || ofKind(operations, "kill") {
		s.summary.kills++
	}

	var wrong []string
	for i, d := range operations {
		err := outcomes[i]
		line := s.summary.done(d, err)
		if s.options.Operations != nil {
			fmt.Fprintln(s.options.Operations, line)
		}
		if d.then != nil {
			d.then(err)
		}
		if problem := judge(d, err, calm, len(operations) > 1); problem != "" {
			wrong = append(wrong, problem)
		}
	}

	if _, err := s.site.PluginRuns(); err != nil {
		wrong = append(wrong, fmt.Sprintf("the plugin has ended by itself: %v", err))
	}

	wrong = append(wrong, s.watch(ctx, len(operations))...)
	return s.violated(wrong)
}

func ofKind(operations []*operation, action string) bool {
	return slices.ContainsFunc(operations, func(d *operation) bool { return d.action == action })
}

// judge returns a violation if an outcome is wrong, or "". If `calm` is true, an operation may fail only for a
// permitted reason, and an operation that must fail may not succeed.
func judge(d *operation, err error, calm, others bool) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s %s takes more than %s", d.action, d.what, operationTime)
	}

	if !calm || !d.judged {
		return ""
	}

	switch {
	case err == nil && d.must:
		return fmt.Sprintf("%s %s succeeded, but should have been refused for one of %q", d.action, d.what, d.may)
	case err == nil, slices.Contains(d.may, reasonOf(err)), reasonOf(err) == runtimesOwn:
		return ""
	case others && reasonOf(err) == classFull:
		return "" // concurrent operations may have taken the free slots
	}

	return fmt.Sprintf("%s %s failed for an unexpected reason: %v", d.action, d.what, err)
}

// violated records violations. If Options.Ignore does not ignore all of them, it returns ErrViolated, which ends the
// soak.
func (s *Soak) violated(wrong []string) error {
	s.summary.checks++
	if s.options.Ignore != nil {
		wrong = slices.DeleteFunc(wrong, s.options.Ignore)
	}
	if len(wrong) == 0 {
		return nil
	}
	s.summary.violations = append(s.summary.violations, wrong...)
	return ErrViolated
}
