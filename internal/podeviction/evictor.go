// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podeviction evicts pods whose class was removed, if the class files set "onClassRemoved: evict" for the
// class's resource.
package podeviction

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

const (
	// settle is how long a pod must be a target without interruption before it is evicted. It prevents evictions when
	// class files are changed in several steps, or when a wrong change is corrected at once.
	settle = 10 * time.Second
	// evictionsPerSecond and evictionBurst limit the rate of evictions on one node.
	evictionsPerSecond = 1
	evictionBurst      = 5
	requestTimeout     = 30 * time.Second
)

// Cache provides the plugin's state. nodecache.Cache implements it.
type Cache interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options configure an Evictor.
type Options struct {
	// NodeName is the node whose pods may be evicted. Pods of other nodes are never evicted, even if the plugin reports them.
	NodeName string
	Events   bool
	Writes   *kubeapi.Writes
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Evictor evicts the pods of one node that the plugin reports as eviction targets.
type Evictor struct {
	plugin  Cache
	client  kubeapi.Core
	options Options
	limit   flowcontrol.RateLimiter
	queue   workqueue.TypedDelayingInterface[types.UID]
	events  *podevents.Recorder
	results *prometheus.CounterVec
	// targets is nil if the plugin is not ready.
	targets atomic.Pointer[[]*target]

	// The fields below are used only by the goroutine that runs the method `reconcile`.
	pods map[types.UID]*progress
	// `forbidden` has a retry for each namespace in which the permission to evict pods is missing. `forbiddenLogged` is
	// true after the missing permission was logged.
	forbidden       map[string]*kubeapi.Retry
	forbiddenLogged bool
	// server is the circuit breaker for the API server.
	server              kubeapi.Retry
	serverLog, eventLog kubeapi.OutcomeLog
}

type target struct {
	// uid is the UID that the pod has on the node.
	uid             types.UID
	namespace, name string
	// reason joins the reasons for all containers of the pod into one line.
	reason string
}

// progress is the state of the eviction of one pod. It exists as long as the pod is a target.
type progress struct {
	namespace string
	// settled is the earliest time of the eviction: `settle` after the pod became a target.
	settled time.Time
	retry   kubeapi.Retry
	// done is true if the pod was evicted, is gone or is a static pod. The Evictor does not try again.
	done bool
	// reported is the latest result that was written to the log and to the pod's events.
	reported result
}

// New makes an evictor. It does no I/O and starts nothing.
func New(plugin Cache, client kubeapi.Core, options Options) *Evictor {
	e := &Evictor{
		plugin: plugin, client: client, options: options,
		limit:  flowcontrol.NewTokenBucketRateLimiter(evictionsPerSecond, evictionBurst),
		events: podevents.NewRecorder(client, options.Writes, options.NodeName),
		results: promauto.With(options.Registry).NewCounterVec(prometheus.CounterOpts{
			Name: "qos_shim_evictions_total", Help: "Attempts to evict a pod whose class was removed from the class files, by result.",
		}, []string{"result"}),
		pods: map[types.UID]*progress{}, forbidden: map[string]*kubeapi.Retry{},
		serverLog: kubeapi.OutcomeLog{What: "evict pods", Log: options.Log},
		eventLog:  kubeapi.OutcomeLog{What: "write events of pods that are evicted", Log: options.Log},
	}

	for _, r := range []result{evicted, gone, static, blocked, forbidden, unavailable, failed} {
		e.results.WithLabelValues(string(r)) // exports 0
	}
	return e
}

// Run evicts pods until ctx ends. It evicts no pod while the plugin is not ready.
func (e *Evictor) Run(ctx context.Context) error {
	e.queue = workqueue.NewTypedDelayingQueue[types.UID]()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { e.watchPlugin(ctx); return nil })
	group.Go(func() error { kubeapi.Work(ctx, e.queue, e.reconcile); return nil })
	<-ctx.Done()
	e.queue.ShutDown()
	return group.Wait()
}

// watchPlugin enqueues the present targets, and the pods that were targets until now, whenever the plugin's state
// changes.
func (e *Evictor) watchPlugin(ctx context.Context) {
	var former []*target
	for {
		state, changed := e.plugin.Get()
		if !state.Ready() {
			e.targets.Store(nil)
		} else {
			targets := targetsOf(state.Assignments.GetEvictions())
			e.targets.Store(&targets)
			for _, t := range slices.Concat(former, targets) {
				e.queue.Add(t.uid)
			}
			former = targets
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (e *Evictor) reconcile(ctx context.Context, uid types.UID) (again time.Duration) {
	if t, again := e.due(uid); t == nil {
		return again
	}
	if e.limit.Wait(ctx) != nil {
		return 0
	}
	t, again := e.due(uid) // the targets may have changed during the wait
	if t == nil {
		return again
	}

	e.evict(ctx, t)
	if t, again = e.due(uid); t != nil {
		return time.Millisecond
	}
	return again
}

// due returns the target that has the UID, if it may be evicted now. Otherwise due returns nil and the time to wait. If
// this time is 0, the target need not be checked again until the targets change.
func (e *Evictor) due(uid types.UID) (t *target, wait time.Duration) {
	targets := e.targets.Load()
	if targets == nil {
		return nil, 0
	}
	i := slices.IndexFunc(*targets, func(t *target) bool { return t.uid == uid })
	if i < 0 {
		e.forget(uid)
		return nil, 0
	}

	t = (*targets)[i]
	p := e.pods[uid]
	if p == nil {
		p = &progress{namespace: t.namespace, settled: time.Now().Add(settle)}
		e.pods[uid] = p
	}
	if p.done {
		return nil, 0
	}
	wait = max(time.Until(p.settled), p.retry.Wait(), e.server.Wait())
	if r := e.forbidden[t.namespace]; r != nil {
		wait = max(wait, r.Wait())
	}
	if wait > 0 {
		return nil, wait
	}
	return t, 0
}

// forget deletes the progress of a pod that is no longer a target. It also deletes a namespace's retry in e.forbidden
// if the namespace has no more targets.
func (e *Evictor) forget(uid types.UID) {
	delete(e.pods, uid)
	used := map[string]bool{}
	for _, p := range e.pods {
		used[p.namespace] = true
	}
	maps.DeleteFunc(e.forbidden, func(namespace string, _ *kubeapi.Retry) bool { return !used[namespace] })
	e.forbiddenLogged = e.forbiddenLogged && len(e.forbidden) > 0
}

func targetsOf(evictions []*qosv1alpha1.Eviction) []*target {
	var list []*target
	known := map[types.UID]*target{}
	for _, e := range evictions {
		uid := types.UID(e.GetPodUid())
		if t := known[uid]; t != nil {
			t.reason += "; " + e.GetMessage()
			continue
		}
		known[uid] = &target{uid: uid, namespace: e.GetNamespace(), name: e.GetPod(), reason: e.GetMessage()}
		list = append(list, known[uid])
	}
	return list
}
