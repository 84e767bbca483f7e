// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin publishes QoS classes to kubelet, so that kubelet and the scheduler account for the capacity
// of the classes. It runs one device plugin for each class.
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
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// Cache provides the plugin's state, and a channel that is closed when the state changes.
type Cache interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options of a Publisher.
type Options struct {
	// KubeletDir is kubelet's root directory, e.g. /var/lib/kubelet. It has the directories device-plugins and
	// pod-resources.
	KubeletDir string
	// Grace is how long free devices stay healthy while the plugin is not ready.
	Grace    time.Duration
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// timing has the clock that tests stop, and the durations that they replace by shorter ones.
type timing struct {
	now       func() time.Time
	debounce  time.Duration // time that the publisher waits for further changes after a first change
	deviceTTL time.Duration // see phaseOut
	startup   time.Duration // see allocationCache
	// poll is the first interval between two polls of kubelet while kubelet and the plugin disagree. The
	// interval is doubled after each poll, up to pollMax.
	poll, pollMax time.Duration
}

// Publisher publishes the classes of a node to its kubelet.
type Publisher struct {
	plugin     Cache
	kubeletDir string
	dir        string // directory of the device plugins' sockets
	grace      time.Duration
	log        *slog.Logger
	metrics    *metrics
	timing     timing

	changed  chan struct{} // a value wakes publishLoop
	register chan struct{} // a value wakes registerLoop, because a socket is missing or an endpoint is new
	lost     chan struct{} // a value wakes registerLoop, because kubelet has ended a stream

	cleaned bool // true after stale sockets were removed; only registerLoop uses it

	// Only publishLoop uses the following fields. `allocations` is nil until the plugin has been ready for the
	// first time.
	allocations             *allocationCache
	podResourcesUnavailable bool
	withheld                bool // true while free devices are unhealthy, because the plugin has been unready for too long

	kubeletRestarted atomic.Bool // true if kubelet may have restarted and the allocation cache has not recorded this yet
	published        atomic.Bool // true after the classes have been published for the first time

	mu        sync.Mutex // guards the fields below
	endpoints map[string]*endpoint
	problem   string // why not all endpoints are registered; empty if all are registered
}

// New creates a publisher and registers its metrics. It does no I/O.
func New(plugin Cache, o Options) *Publisher {
	p := &Publisher{
		plugin: plugin, kubeletDir: filepath.Clean(o.KubeletDir), dir: filepath.Join(o.KubeletDir, pluginsDirectory),
		grace: o.Grace, log: o.Log,
		timing: timing{
			now: time.Now, debounce: 200 * time.Millisecond, deviceTTL: 5 * time.Second, startup: 30 * time.Second,
			poll: 2 * time.Second, pollMax: 10 * time.Second,
		},
		changed: make(chan struct{}, 1), register: make(chan struct{}, 1), lost: make(chan struct{}, 1),
		endpoints: map[string]*endpoint{},
	}
	p.metrics = newMetrics(o.Registry, func() float64 { return float64(len(p.sorted()) - len(p.unregistered())) })
	return p
}

// Run publishes until ctx ends. After that, kubelet treats all devices as unhealthy until a publisher publishes them again.
func (p *Publisher) Run(ctx context.Context) error {
	dir := newDirectory(p.kubeletDir, p.log, p.socketRemoved, func() {
		p.kubeletRestarted.Store(true)
		wake(p.changed)
	})
	var loops sync.WaitGroup
	loops.Go(func() { dir.run(ctx) })
	loops.Go(func() { p.registerLoop(ctx, dir) })
	loops.Go(func() { p.publishLoop(ctx) })
	loops.Wait()

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

// Healthy returns nil if kubelet watches the devices of every class. Otherwise it returns the reason why not.
func (p *Publisher) Healthy() error {
	p.mu.Lock()
	problem := p.problem
	p.mu.Unlock()
	if problem != "" {
		return errors.New(problem)
	}

	if !p.published.Load() {
		if state, _ := p.plugin.Get(); !state.Ready() {
			return fmt.Errorf("no class is published to kubelet yet: %s", state.Problem)
		}
		return errors.New("no class is published to kubelet yet")
	}
	if waiting := p.unregistered(); len(waiting) > 0 {
		return fmt.Errorf("kubelet does not watch %s yet", waiting[0].extended)
	}
	return nil
}

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

func (p *Publisher) unregistered() []*endpoint {
	return slices.DeleteFunc(p.sorted(), (*endpoint).registered)
}

// publishLoop updates the endpoints' devices until ctx ends.
func (p *Publisher) publishLoop(ctx context.Context) {
	interval := p.timing.poll
	for {
		state, changed := p.plugin.Get()
		recheck, needsPoll := p.publish(ctx, state, p.timing.now())
		var poll <-chan time.Time
		if needsPoll {
			poll = time.After(interval)
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-p.changed:
		case <-after(recheck):
			continue
		case <-poll:
			interval = min(2*interval, p.timing.pollMax)
			continue
		}
		interval = p.timing.poll
		pause.For(ctx, p.timing.debounce)
	}
}

// after is time.After, but its channel never receives a value if the duration is 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// publish updates the endpoints for a state of the plugin. `recheck` is the time after which publish must be called
// again even if nothing changes; 0 means never. `needsPoll` is true if kubelet must be polled.
func (p *Publisher) publish(ctx context.Context, state nodecache.State, now time.Time) (recheck time.Duration, needsPoll bool) {
	if state.Status == nil {
		return 0, false
	}
	if p.allocations == nil {
		p.allocations = newAllocationCache(p.timing.startup, now)
	}

	if !state.Ready() {
		if left := p.grace - now.Sub(state.NotReadySince); left > 0 {
			return left, false
		}
		if !p.published.Load() {
			return 0, false
		}
	}
	p.setWithheld(!state.Ready(), state.Problem)
	return p.publishClasses(ctx, state, now)
}

// setWithheld records whether free devices are published as unhealthy. It logs changes.
func (p *Publisher) setWithheld(withheld bool, problem string) {
	switch {
	case withheld && !p.withheld:
		p.log.Warn("qos-nri-plugin has been unready for longer than --grace: free devices are reported as unhealthy, and running pods continue",
			"after", p.grace, "problem", problem)
	case !withheld && p.withheld:
		p.log.Info("qos-nri-plugin is ready: free devices are healthy again")
	}
	p.withheld = withheld
}

func (p *Publisher) publishClasses(ctx context.Context, state nodecache.State, now time.Time) (recheck time.Duration, needsPoll bool) {
	reported, err := p.listAllocations(ctx)
	if ctx.Err() != nil {
		return 0, false
	}
	granted := p.takeGrants() // taken after the list was read, so that a device granted in between counts as unreported

	list := classesOf(state.Status.GetResources())
	p.recordAnswer(err, granted, now)
	count := account
	switch {
	case err != nil:
		reported, count = p.allocations.cached(list, now), accountFromCache
	case p.withheld:
		p.allocations.merge(reported, list, nil, now) // passes no assignments, because those of the plugin are outdated
	default:
		p.allocations.merge(reported, list, state.Assignments, now)
	}

	needsPoll = err != nil
	keep, before := map[string]bool{}, len(p.sorted())
	for _, c := range list {
		keep[c.extended] = true
		u := count(c, state.Assignments, reported)
		wanted := plan(c, u)
		if p.withheld {
			wanted = planWithheld(c, u)
			u.needsPoll = u.needsPoll || len(u.allocated)+u.unreported > 0
		}
		needsPoll = needsPoll || u.needsPoll
		recheck = pause.Shortest(recheck, p.publishClass(c, wanted, u.unaccounted, now))
	}
	if len(p.sorted()) > before {
		wake(p.register) // once, so that all new classes are registered at the same time
	}
	p.published.Store(true)
	return pause.Shortest(recheck, p.removeOthers(keep, now)), needsPoll
}

func (p *Publisher) takeGrants() map[string][]string {
	granted := map[string][]string{}
	for _, e := range p.sorted() {
		granted[e.extended] = e.takeGrants()
	}
	return granted
}

// recordAnswer records whether kubelet answered, and records the devices that were granted since kubelet's previous answer.
func (p *Publisher) recordAnswer(err error, granted map[string][]string, now time.Time) {
	unavailable := err != nil
	if p.kubeletRestarted.Swap(false) || p.podResourcesUnavailable && !unavailable {
		p.allocations.kubeletRestarted(now)
	}
	p.allocations.grant(granted, now)

	switch {
	case unavailable && !p.podResourcesUnavailable:
		p.log.Warn("kubelet's pod-resources API does not answer, so the shim counts devices by the classes of the running containers; "+
			"if kubelet runs, mount its pod-resources directory into --kubelet-dir, next to device-plugins", "err", err)
	case !unavailable && p.podResourcesUnavailable:
		p.log.Info("kubelet's pod-resources API answers again")
	}
	p.podResourcesUnavailable = unavailable
}

// publishClass updates the devices of a class. If the endpoint is new, publishClass sets its devices before the
// endpoint is registered.
func (p *Publisher) publishClass(c class, wanted []device, unaccounted int, now time.Time) (recheck time.Duration) {
	p.mu.Lock()
	e, found := p.endpoints[c.extended]
	p.mu.Unlock()
	if !found {
		e = newEndpoint(c.extended, p)
	}

	devices, recheck := phaseOut(e.look().devices, wanted, e.leaving, now, p.timing.deviceTTL)
	p.metrics.published(c.extended, devices, unaccounted) // before the devices, so that the metrics count all devices that kubelet has
	e.update(func(s *endpointState) { s.class, s.devices = c, devices })

	if !found {
		p.mu.Lock()
		p.endpoints[c.extended] = e
		p.mu.Unlock()
		p.log.Info("class is published", "resource", c.resource, "class", c.name, "extended_resource", c.extended)
	}
	return recheck
}

// removeOthers removes all endpoints whose extended resource is not in the map `keep`. Before it removes an endpoint, it
// sends kubelet the endpoint's devices as unhealthy, and then an empty list of devices.
func (p *Publisher) removeOthers(keep map[string]bool, now time.Time) (recheck time.Duration) {
	for _, e := range p.sorted() {
		if keep[e.extended] {
			continue
		}
		devices, left := phaseOut(e.look().devices, nil, e.leaving, now, p.timing.deviceTTL)
		e.update(func(s *endpointState) { s.class.draining, s.devices = true, devices })
		p.metrics.published(e.extended, devices, 0)
		if len(devices) > 0 {
			recheck = pause.Shortest(recheck, left)
			continue
		}

		p.mu.Lock()
		delete(p.endpoints, e.extended)
		p.mu.Unlock()
		p.allocations.delete(e.extended)
		p.metrics.removed(e.extended)
		e.end()
		p.log.Info("class is no longer published", "extended_resource", e.extended)
	}
	return recheck
}
