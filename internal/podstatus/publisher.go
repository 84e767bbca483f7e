// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podstatus publishes the QoS classes of pods as a condition and as events, and lets running pods follow their annotations.
package podstatus

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

const (
	// debounce is the delay between a change of a pod and its reconcile. The containers of a pod often change one after
	// the other, and one reconcile then covers all of these changes.
	debounce = 500 * time.Millisecond
	// If more than manyPods pods change together, pods of other nodes probably change, too. The publisher then
	// reconciles the pods at random times within `spread`, so that not all nodes write at once.
	manyPods = 10
	spread   = time.Minute
	// workers is the number of pods that are reconciled at the same time. A worker mostly waits for the plugin or the API.
	workers = 2
	// The rate of writes is lower than the shim's rate limit, so that the other publishers can write, too. Conditions and events have a
	// rate each, so that the events of many pods do not delay their conditions.
	conditionsPerSecond = 5
	eventsPerSecond     = 3
	writeBurst          = 10
	// rewriteInterval is the minimum time between two writes of the same annotation to a pod. Without it, each change of the annotation by
	// another client would cost the publisher a write.
	rewriteInterval = time.Minute
	// latestTTL is how long the publisher caches the response to a write of a pod, unless the watch delivers the pod
	// earlier.
	latestTTL = time.Hour
)

// Cache provides the plugin's state. nodecache.Cache implements it.
type Cache interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options configure a Publisher.
type Options struct {
	// NodeName is the node whose pods are published. It is required.
	NodeName           string
	Conditions, Events bool
	// FollowAnnotations lets the publisher call Update when the annotations of a running pod request other classes.
	FollowAnnotations bool
	Update            podrequests.Update
	// RefusedChanges gets the refused class changes of a pod, which is given as namespace/name. It may be nil.
	RefusedChanges func(pod string, refusals []nodeqosv1alpha1.Refusal)
	Writes         *kubeapi.Writes
	Registry       prometheus.Registerer
	Log            *slog.Logger
}

// Publisher publishes the classes of the pods of one node.
type Publisher struct {
	plugin   Cache
	client   kubeapi.Core
	options  Options
	informer cache.SharedIndexInformer
	// latest has the pods of the informer. If the response to a write has a newer version of a pod, this version takes
	// precedence.
	latest  cache.MutationCache
	queue   workqueue.TypedDelayingInterface[string] // namespace/name
	breaker *kubeapi.Breaker
	// eventQueue has the pods whose events are to be written, after their condition.
	eventQueue   workqueue.TypedDelayingInterface[string]
	eventBreaker *kubeapi.Breaker
	events       *podevents.Recorder
	snapshot     atomic.Pointer[snapshot]
	changes      classChanges
	pods         sync.Map // *podState by namespace/name
	failures     *failureLog
	// watchLog logs whether the informer's requests succeed. Only the informer's goroutine uses it.
	watchLog kubeapi.OutcomeLog
}

// New makes a publisher. It does no I/O and starts nothing.
func New(plugin Cache, client kubeapi.Core, options Options) *Publisher {
	return &Publisher{
		plugin: plugin, client: client, options: options,
		breaker: kubeapi.NewBreaker(conditionsPerSecond, writeBurst), eventBreaker: kubeapi.NewBreaker(eventsPerSecond, writeBurst),
		events:   podevents.NewRecorder(client, options.Writes, options.NodeName),
		changes:  classChanges{byPod: map[podevents.Pod][]podevents.Record{}},
		failures: newFailureLog(options.Log),
		watchLog: kubeapi.OutcomeLog{What: "watch the pods of this node", Log: options.Log},
	}
}

// Run publishes until ctx ends. It returns an error only when it cannot start.
func (p *Publisher) Run(ctx context.Context) error {
	if p.options.NodeName == "" {
		return errors.New("--node-name is empty; pass the name of this node")
	}

	group, ctx := errgroup.WithContext(ctx)
	p.queue, p.eventQueue = workqueue.NewTypedDelayingQueue[string](), workqueue.NewTypedDelayingQueue[string]()
	pods, selector := p.client.Pods(metav1.NamespaceAll), "spec.nodeName="+p.options.NodeName
	p.informer = kubeapi.NewInformer(ctx, pods, selector, &corev1.Pod{}, p.watchLog.Record)
	registration, err := p.informer.AddEventHandler(p.handler())
	if err := errors.Join(err, p.informer.SetTransform(strip)); err != nil {
		return err
	}

	p.latest = cache.NewIntegerResourceVersionMutationCache(klog.Logger{}, p.informer.GetStore(), nil, latestTTL, false)
	p.options.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "qos_shim_pods", Help: "Pods of this node in the cache of the Kubernetes API.",
	}, func() float64 { return float64(len(p.informer.GetStore().ListKeys())) }))

	group.Go(func() error { p.informer.RunWithContext(ctx); return nil })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-registration.HasSyncedChecker().Done():
			p.enqueueAll(p.informer.GetStore().ListKeys())
		}
		return nil
	})
	group.Go(func() error { p.watchPlugin(ctx); return nil })
	for range workers {
		group.Go(func() error { kubeapi.Work(ctx, p.queue, p.reconcile); return nil })
	}

	group.Go(func() error { kubeapi.Work(ctx, p.eventQueue, p.writeEvents); return nil })

	<-ctx.Done()
	p.queue.ShutDown()
	p.eventQueue.ShutDown()
	return group.Wait()
}

func (p *Publisher) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if !isInInitialList {
				p.enqueue(object)
			}
		},
		UpdateFunc: func(before, after any) {
			if !unchanged(before, after) {
				p.enqueue(after)
			}
		},
		DeleteFunc: p.enqueue,
	}
}

func (p *Publisher) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		p.queue.AddAfter(key, debounce)
	}
}

func (p *Publisher) enqueueAll(keys []string) {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, key := range keys {
		wait := debounce
		if len(keys) > manyPods {
			wait += rand.N(spread - debounce)
		}
		p.queue.AddAfter(key, wait)
	}
}

// watchPlugin enqueues each pod whose state in the plugin changes. When the plugin becomes ready, watchPlugin enqueues all pods.
func (p *Publisher) watchPlugin(ctx context.Context) {
	for {
		state, changed := p.plugin.Get()
		next, before := newSnapshot(state), p.snapshot.Load()
		p.snapshot.Store(next)

		if next.ready {
			p.changes.add(before, next)
			if before == nil || !before.ready {
				p.enqueueAll(p.informer.GetStore().ListKeys())
			} else {
				p.enqueueAll(next.differs(before))
			}
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}
