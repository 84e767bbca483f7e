// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin publishes QoS classes to kubelet, a device plugin each, so that kubelet and scheduler account for
// their capacity.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// Feed has the state of the plugin; changed is closed when there is another one.
type Feed interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options are those of a Publisher.
type Options struct {
	// KubeletDir is kubelet's root directory, e.g. /var/lib/kubelet, with device-plugins and pod-resources in it.
	KubeletDir string
	// Grace is how long devices stay as they are while the plugin is away; 0 is 30 s.
	Grace time.Duration
	// Registry takes the metrics; nil is none.
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// timing is what tests have shorter.
type timing struct {
	coalesce time.Duration // from the first of several changes to the look at all of them
	linger   time.Duration // see settle
	// settle is how long kubelet may take from its start until it tells all of its pods.
	settle time.Duration
	// Kubelet is asked again after poll, then twice that, up to pollMost, while it and the plugin do not agree.
	poll, pollMost time.Duration
}

// Publisher publishes the classes of a node to its kubelet.
type Publisher struct {
	feed       Feed
	kubeletDir string
	dir        string // of the device plugins' sockets
	grace      time.Duration
	log        *slog.Logger
	metrics    *metrics
	timing     timing

	look     chan struct{} // wakes follow
	register chan struct{} // wakes keepRegistered: there is something to bind or to register
	lost     chan struct{} // wakes keepRegistered: kubelet has ended to follow

	swept bool // keepRegistered's: the predecessor's sockets are gone
	// follow's: kubelet does not say what it has allocated; what it said last, and has got since.
	deaf   bool
	ledger *ledger
	// follow's: no free device is healthy, because the plugin has been away for too long.
	withheld bool

	mu        sync.Mutex // guards all below
	endpoints map[string]*endpoint
	problem   string   // why not all are registered; empty if nothing stands in the way
	restarted bool     // kubelet may have started anew, and the ledger does not know that yet
	begun     bool     // the classes have been known once
	attempt   *attempt // nil when no registration is under way
}

// New makes a publisher. It does no I/O but to register its metrics.
func New(feed Feed, o Options) *Publisher {
	p := &Publisher{
		feed: feed, kubeletDir: filepath.Clean(o.KubeletDir), dir: filepath.Join(o.KubeletDir, pluginsDirectory),
		grace: o.Grace, log: o.Log,
		timing: timing{
			coalesce: 200 * time.Millisecond, linger: 5 * time.Second, settle: 30 * time.Second, poll: 2 * time.Second, pollMost: 10 * time.Second,
		},
		look: make(chan struct{}, 1), register: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		ledger: newLedger(), endpoints: map[string]*endpoint{},
	}
	if p.grace == 0 {
		p.grace = 30 * time.Second
	}
	p.metrics = newMetrics(p.sorted)
	if o.Registry != nil {
		o.Registry.MustRegister(p.metrics)
	}
	return p
}

// Run publishes until ctx ends. Then kubelet takes all devices for unhealthy, until somebody publishes them again.
func (p *Publisher) Run(ctx context.Context) error {
	dir := newDirectory(p.kubeletDir, p.log, p.socketRemoved, p.kubeletStarted)
	var parts sync.WaitGroup
	parts.Go(func() { dir.run(ctx) })
	parts.Go(func() { p.keepRegistered(ctx, dir) })
	parts.Go(func() { p.follow(ctx) })
	parts.Wait()

	var ends sync.WaitGroup
	for _, e := range p.sorted() {
		ends.Go(e.end)
	}
	ends.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.endpoints)
	return nil
}

// Healthy is nil when kubelet follows every class, else it says why not.
func (p *Publisher) Healthy() error {
	state, _ := p.feed.Get()
	p.mu.Lock()
	problem, begun := p.problem, p.begun
	p.mu.Unlock()
	switch {
	case problem != "":
		return errors.New(problem)
	case !begun && state.Ready():
		return errors.New("no class is published to kubelet yet")
	case !begun:
		return fmt.Errorf("no class is published to kubelet yet: %s", state.Problem)
	}
	for _, e := range p.sorted() {
		if !e.registered() {
			return fmt.Errorf("kubelet does not follow %s yet", e.extended)
		}
	}
	return nil
}

// sorted lists the endpoints by name.
func (p *Publisher) sorted() []*endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*endpoint, 0, len(p.endpoints))
	for _, e := range p.endpoints {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *endpoint) int { return strings.Compare(a.extended, b.extended) })
	return list
}

// follow has every endpoint list what is right now, until ctx ends.
func (p *Publisher) follow(ctx context.Context) {
	poll := p.timing.poll
	for {
		state, changed := p.feed.Get()
		again, restless := p.publish(ctx, state, time.Now())
		if ctx.Err() != nil {
			return
		}
		var ask <-chan time.Time
		if restless {
			ask = time.After(poll)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			poll = p.timing.poll
		case <-p.look:
			poll = p.timing.poll
		case <-after(again):
			continue
		case <-ask:
			poll = min(2*poll, p.timing.pollMost)
			continue
		}
		select { // what comes together is looked at together
		case <-ctx.Done():
		case <-time.After(p.timing.coalesce):
		}
	}
}

// after sends after a while; never for 0.
func after(while time.Duration) <-chan time.Time {
	if while == 0 {
		return nil
	}
	return time.After(while)
}

// publish has the endpoints list what is right in a state. That is good until the next change, or, unless it is 0, for
// again; restless is whether kubelet should be asked again some time.
func (p *Publisher) publish(ctx context.Context, state nodecache.State, now time.Time) (again time.Duration, restless bool) {
	if state.Status == nil {
		return 0, false
	}
	if p.ledger.settle == 0 {
		p.ledger.settle = p.timing.settle
		p.ledger.restarted(now)
	}
	if state.Ready() {
		if p.withheld {
			p.withheld = false
			p.log.Info("devices are offered again")
		}
		return p.offer(ctx, state, now, false)
	}
	if left := p.grace - now.Sub(state.NotReadySince); left > 0 {
		return left, false
	}
	if p.begunAlready() {
		p.tellWithheld(state)
		return p.offer(ctx, state, now, true)
	}
	return 0, false
}

func (p *Publisher) begunAlready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun
}

func (p *Publisher) tellWithheld(state nodecache.State) {
	if !p.withheld {
		p.withheld = true
		p.log.Warn("qos-nri-plugin has been away for too long: kubelet is told that no free device of a class is healthy; "+
			"pods that run stay", "after", p.grace, "problem", state.Problem)
	}
}

// offer publishes the classes of a plugin; away is that it has been away for too long, and nothing is to be had.
func (p *Publisher) offer(ctx context.Context, state nodecache.State, now time.Time, away bool) (again time.Duration, restless bool) {
	held, err := p.askKubelet(ctx)
	if ctx.Err() != nil {
		return 0, false
	}
	granted := p.grants() // after kubelet was asked: none that its answer tells may come later, and be taken for untold
	list := classesOf(state.Status.GetResources())
	p.remember(held, err, granted, now)
	count := account
	switch {
	case err != nil:
		held, count = p.ledger.alone(list, now), accountAlone
	case away:
		p.ledger.heard(held, list, nil, now) // what the plugin told has been long ago
	default:
		p.ledger.heard(held, list, state.Assignments, now)
	}
	restless = err != nil
	offered := map[string]bool{}
	for _, c := range list {
		u := count(c, state.Assignments, held)
		wanted := plan(c, u)
		if away {
			wanted = withheld(c, u)
			u.restless = u.restless || len(u.allocated)+u.silent > 0
		}
		offered[c.extended] = true
		restless = restless || u.restless
		again = pause.Shortest(again, p.publishClass(c, wanted, u.unaccounted, now))
	}
	p.mu.Lock()
	p.begun = true
	p.mu.Unlock()
	return pause.Shortest(again, p.retire(offered, now)), restless
}

// remember takes whether kubelet has answered, and what happened meanwhile.
func (p *Publisher) remember(held *holdings, err error, granted map[string][]string, now time.Time) {
	p.mu.Lock()
	restarted := p.restarted || p.deaf && held != nil
	p.restarted = false
	p.mu.Unlock()
	p.heard(err)
	if restarted {
		p.ledger.restarted(now)
	}
	p.ledger.grant(granted, now)
}

// noteRestart takes that kubelet may have started anew: it does not follow any more, or has made a socket.
func (p *Publisher) noteRestart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restarted = true
}

func (p *Publisher) kubeletStarted() {
	p.noteRestart()
	poke(p.look)
}

// grants are the device IDs that were handed out since they were asked for last, by extended resource.
func (p *Publisher) grants() map[string][]string {
	granted := map[string][]string{}
	for _, e := range p.sorted() {
		granted[e.extended] = e.takeGrants()
	}
	return granted
}

// publishClass has the class's endpoint list its devices. A new one has its list before kubelet hears of it.
func (p *Publisher) publishClass(c class, wanted []device, unaccounted int, now time.Time) (again time.Duration) {
	p.mu.Lock()
	e, found := p.endpoints[c.extended]
	p.mu.Unlock()
	if !found {
		e = newEndpoint(c.extended, events{
			followed: func() { poke(p.look) },
			lost: func() {
				p.noteRestart()
				poke(p.lost)
			},
			allocated: func(granted bool) {
				p.metrics.allocated(granted, 1)
				poke(p.look)
			},
		})
	}
	devices, again := settle(e.look().devices, wanted, e.leaving, now, p.timing.linger)
	e.set(c, devices, unaccounted)
	if !found {
		p.mu.Lock()
		p.endpoints[c.extended] = e
		p.mu.Unlock()
		poke(p.register)
		p.log.Info("class is published", "resource", c.resource, "class", c.name, "extended_resource", c.extended)
	}
	return again
}

// retire ends what is no longer offered: it lists nothing, and kubelet gets to see that.
func (p *Publisher) retire(offered map[string]bool, now time.Time) (again time.Duration) {
	for _, e := range p.sorted() {
		if offered[e.extended] {
			continue
		}
		devices, left := settle(e.look().devices, nil, e.leaving, now, p.timing.linger)
		e.retire(devices)
		if len(devices) > 0 {
			again = pause.Shortest(again, left)
			continue
		}
		p.mu.Lock()
		delete(p.endpoints, e.extended)
		p.mu.Unlock()
		p.ledger.forget(e.extended)
		e.end()
		p.log.Info("class is no longer published", "extended_resource", e.extended)
	}
	return again
}
