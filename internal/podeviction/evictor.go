// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podeviction evicts pods that have a class which was taken out of class files that ask for it.
package podeviction

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

const (
	// settle is how long a pod has to be due without a break: class files that are changed in two steps, or put right at once, evict
	// nobody.
	settle = 10 * time.Second
	// A node evicts this many pods at most.
	evictionsPerSecond = 1
	evictionBurst      = 5
	// requestTime is the longest that the API server may take for one pod.
	requestTime = 30 * time.Second
)

// Feed has what the plugin told last; nodecache.Cache is one.
type Feed interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options say whose pods are evicted.
type Options struct {
	// NodeName is the node whose pods these are. Pods of other nodes are never evicted, whatever the feed says.
	NodeName string
	// Events says whether pods get events that tell of it.
	Events   bool
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Evictor evicts those pods of a node that the plugin says are to be evicted.
type Evictor struct {
	feed    Feed
	client  kubernetes.Interface
	options Options
	limit   flowcontrol.RateLimiter
	writes  *kubeapi.Writes
	results *prometheus.CounterVec

	// Only Run has all below.
	pods map[types.UID]*progress
	// refusing are the namespaces in which the right to evict is missing; saidRefusing that the log has it.
	refusing     map[string]*retry
	saidRefusing bool
	// server is the API server itself, when it cannot answer anybody.
	server        retry
	serverReport  kubeapi.Report
	eventsWritten kubeapi.Report
}

// progress is how far the eviction of one pod has come. It is forgotten when the pod is not to be evicted any more.
type progress struct {
	retry
	// done says that nothing more is to be asked for.
	done bool
	// said is what came of it last, as it was told.
	said result
}

// retry says when something may be tried again.
type retry struct {
	backoff kubeapi.Backoff
	next    time.Time
}

// postpone lets time pass until the next try, the more the more have failed.
func (r *retry) postpone(err error) {
	r.next = time.Now().Add(r.backoff.Next(err, rand.Float64()))
}

// New makes an evictor. It does no I/O and starts nothing.
func New(feed Feed, client kubernetes.Interface, options Options) *Evictor {
	e := &Evictor{
		feed: feed, client: client, options: options,
		limit:  flowcontrol.NewTokenBucketRateLimiter(evictionsPerSecond, evictionBurst),
		writes: kubeapi.NewWrites(options.Registry),
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "qos_shim_evictions_total", Help: "Tries to evict a pod whose class was taken out of the class files, by what came of them.",
		}, []string{"result"}),
		pods: map[types.UID]*progress{}, refusing: map[string]*retry{},
		serverReport:  kubeapi.Report{What: "evict pods", Log: options.Log},
		eventsWritten: kubeapi.Report{What: "write events of pods that are evicted", Log: options.Log},
	}
	options.Registry.MustRegister(e.results)
	return e
}

// Run evicts until ctx ends. While the plugin is away it evicts nobody.
func (e *Evictor) Run(ctx context.Context) error {
	granted := false // one more request may be made
	for ctx.Err() == nil {
		state, changed := e.feed.Get()
		due, wait := e.next(state)
		switch {
		case due == nil:
			rest(ctx, changed, wait)
		case !granted:
			// What is due may be another pod after the wait, or none.
			granted = e.limit.Wait(ctx) == nil
		default:
			granted = false
			e.evict(ctx, due)
		}
	}
	return nil
}

// rest waits for a change, or for some time if that is not 0.
func rest(ctx context.Context, changed <-chan struct{}, wait time.Duration) {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-changed:
	case <-over:
	}
}

// next returns the pod that has been due for the longest time; without one, how long it is until then. 0 is not before something
// changes.
func (e *Evictor) next(state nodecache.State) (due *wish, wait time.Duration) {
	if !state.Ready() {
		return nil, 0
	}
	wishes := wishesOf(state.Assignments.GetEvictions())
	e.keep(wishes)
	var first time.Time
	for i := range wishes {
		at, open := e.due(&wishes[i])
		left := time.Until(at)
		switch {
		case !open:
		case left > 0:
			wait = pause.Shortest(wait, left)
		case due == nil || at.Before(first):
			due, first = &wishes[i], at
		}
	}
	return due, wait
}

// keep begins to follow the pods that are to be evicted, and forgets all others.
func (e *Evictor) keep(wishes []wish) {
	pods, refusing := map[types.UID]*progress{}, map[string]*retry{}
	for _, w := range wishes {
		p := e.pods[w.uid]
		if p == nil {
			p = &progress{retry: retry{next: time.Now().Add(settle)}}
		}
		pods[w.uid] = p
		if r := e.refusing[w.namespace]; r != nil {
			refusing[w.namespace] = r
		}
	}
	e.pods, e.refusing = pods, refusing
	e.saidRefusing = e.saidRefusing && len(refusing) > 0
}

// due says when a pod may be evicted; open is false when nothing is left to be done.
func (e *Evictor) due(w *wish) (at time.Time, open bool) {
	p := e.pods[w.uid]
	at = p.next
	if e.server.next.After(at) {
		at = e.server.next
	}
	if r := e.refusing[w.namespace]; r != nil && r.next.After(at) {
		at = r.next
	}
	return at, !p.done
}
