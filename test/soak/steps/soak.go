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
)

// Options of a soak.
type Options struct {
	// Seed decides what is done. What several do at the same time can still come in another order.
	Seed uint64
	// For is how long; Rounds, if not 0, is how many rounds at most.
	For    time.Duration
	Rounds int
	// Steps are those of a round, after which what must hold is looked at.
	Steps int
	// Patience is how long the node has to come to rest after a round.
	Patience time.Duration
	// Ignore, if set, says which violations do not count: what is known already.
	Ignore func(violation string) bool
	// Sabotage lets somebody take disks away, and change what is the plugin's in the kernel.
	Sabotage bool
	// Out is told of the progress, once a Progress.
	Out      io.Writer
	Progress time.Duration
	// Deeds, if set, is told of every deed.
	Deeds io.Writer
}

// ErrViolated is returned when something did not hold.
var ErrViolated = errors.New("something that must hold does not")

// deedTime bounds one deed; a runtime that does not come back is a violation.
const deedTime = 2 * time.Minute

// Soak is a node to which random things are done.
type Soak struct {
	site    Site
	options Options
	random  *rand.Rand
	summary *Summary

	// What follows is the model of what was done. It is read and written by one goroutine, but for containers in deeds.
	pods   []*pod
	made   int
	busy   map[*pod]bool
	file   classFile         // as written last
	files  int               // written so far
	known  map[int]classFile // by number
	before map[string]string // what is foreign
	// foreignChanged says that before is to be read anew.
	foreignChanged bool
	// calm says that nothing but the life of containers has happened since everything was at rest, so that every failure needs a reason.
	calm bool
	// sabotaged is when somebody last did something to the machine, restarted when the runtime was restarted last.
	sabotaged, restarted time.Time
	seen                 seen
	began                time.Time
}

// Run does random things to a site until the time is over, ctx ends, or something does not hold: the error is ErrViolated then. It
// leaves nothing running but the plugin.
func Run(ctx context.Context, site Site, o Options) (*Summary, error) {
	s := &Soak{
		site: site, options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), summary: newSummary(o.Seed),
		busy: map[*pod]bool{}, known: map[int]classFile{}, began: time.Now(), seen: seen{most: map[string]uint64{}},
	}
	s.file = firstClassFile()
	s.files, s.known[s.file.number] = s.file.number, s.file
	// What has begun is ended properly: an interrupt only keeps new rounds from beginning.
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
		err = s.summary.grown()
	}
	s.summary.took = time.Since(s.began)
	return s.summary, err
}

func (s *Soak) over(ctx context.Context, round int) bool {
	// At least until memory was measured, so that there is something to compare with.
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

// round takes some steps, and then looks whether what must hold holds. A third of the rounds has no trouble in it.
func (s *Soak) round(ctx context.Context, number int) error {
	s.summary.round, s.summary.step = number, 0
	actions := life()
	if s.random.IntN(3) > 0 {
		actions = append(actions, s.trouble()...)
	}
	if s.file.wrong != "" && s.random.IntN(2) == 0 {
		s.calm = false
		if err := s.perform(ctx, []*deed{s.reload()}); err != nil { // sooner than by chance
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

// take does one thing or, in every fourth step, several at once.
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

// several are deeds that are done at the same time. Trouble is done by itself.
func (s *Soak) several(actions []action, many int) []*deed {
	var deeds []*deed
	for range many {
		a := choose(s.random, actions)
		if (a.alone || a.trouble) && many > 1 {
			continue
		}
		d := a.plan(s)
		if d == nil {
			continue
		}
		deeds = append(deeds, d)
		s.busy[d.touches] = true
		s.calm = s.calm && !a.trouble
	}
	return deeds
}

// burst are pods that ask for one class at the same time.
func (s *Soak) burst(many int) []*deed {
	a := newBoundedAsk(s.random)
	var deeds []*deed
	for range min(many, mostPods-len(s.pods)) {
		deeds = append(deeds, s.newPodAsking(a))
	}
	return deeds
}

// perform does deeds at the same time, and judges what came of them.
func (s *Soak) perform(ctx context.Context, deeds []*deed) error {
	calm, ran := s.calm, s.pluginRuns()
	outcomes := make([]error, len(deeds))
	var all sync.WaitGroup
	for i, d := range deeds {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, deedTime)
			defer cancel()
			outcomes[i] = d.do(ctx)
		})
	}
	all.Wait()
	if ran && s.summary.armed && !s.pluginRuns() && !ofKind(deeds, "stop") || ofKind(deeds, "kill") {
		s.summary.kills++
	}
	var wrong []string
	for i, d := range deeds {
		err := outcomes[i]
		line := s.summary.done(d, err)
		if s.options.Deeds != nil {
			fmt.Fprintln(s.options.Deeds, line)
		}
		d.then(err)
		if problem := judge(d, err, calm, len(deeds) > 1); problem != "" {
			wrong = append(wrong, problem)
		}
	}
	if _, err := s.site.PluginRuns(); err != nil {
		wrong = append(wrong, fmt.Sprintf("the plugin has ended by itself: %v", err))
	}
	wrong = append(wrong, s.watch(ctx, len(deeds))...)
	return s.violated(wrong)
}

func ofKind(deeds []*deed, action string) bool {
	return slices.ContainsFunc(deeds, func(d *deed) bool { return d.action == action })
}

// judge says what is wrong with an outcome. While nothing else happens there has to be a good reason for every failure, and what
// cannot be given must not be.
func judge(d *deed, err error, calm, others bool) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("%s %s takes more than %s", d.action, d.what, deedTime)
	}
	if !calm || !d.judged {
		return ""
	}
	switch {
	case err == nil && d.must:
		return fmt.Sprintf("%s %s: was done, and should have been refused as one of %q", d.action, d.what, d.may)
	case err == nil, slices.Contains(d.may, reasonOf(err)), reasonOf(err) == runtimesOwn:
		return ""
	case others && reasonOf(err) == classFull:
		return "" // the others had it first
	}
	return fmt.Sprintf("%s %s: failed without a reason: %v", d.action, d.what, err)
}

// violated ends the soak when something is wrong.
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
