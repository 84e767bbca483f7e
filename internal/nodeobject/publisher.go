// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeobject publishes the plugin's state in the NodeQOSResources object of the node.
package nodeobject

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

const (
	// debounce is the delay between a change and the reconcile, so that one write covers several related changes.
	debounce = time.Second
	// interval is the shortest time between two writes.
	interval = 5 * time.Second
	// holdersInterval is the shortest time between two writes if only the holders of classes differ. It is longer than
	// `interval`, because the holders change with every container of the node.
	holdersInterval  = 30 * time.Second
	reconcileTimeout = 30 * time.Second
	// heartbeatJitter is the largest difference between the heartbeat intervals of two nodes.
	heartbeatJitter = time.Minute
)

// Cache provides the latest state of the plugin. *nodecache.Cache implements it.
type Cache interface {
	// Get returns the state, and a channel that is closed when the state changes.
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options of a Publisher.
type Options struct {
	// NodeName is the name of the Node. The NodeQOSResources object has the same name.
	NodeName string
	// FollowsAnnotations is true if the shim follows changed annotations of running pods. The publisher writes this
	// value to the status of the object.
	FollowsAnnotations bool
	// SetClaims makes the plugin enforce the classes of claims. If it is nil, the publisher does not follow the spec of the object.
	SetClaims func(ctx context.Context, claims *qosv1alpha1.SetVolumeClaimsRequest) error
	// RecordEvent writes an event of the object with this UID. If it is nil, the publisher writes no events.
	RecordEvent func(ctx context.Context, uid types.UID, record podevents.Record) error
	Writes      *kubeapi.Writes
	Log         *slog.Logger
}

// Publisher reconciles the NodeQOSResources object of the node with the plugin's state. It writes the object if the
// object and the state differ, and otherwise only as a heartbeat.
type Publisher struct {
	cache   Cache
	options Options
	// heartbeat is the longest time between two writes. It has a random part, so that nodes that wrote at the same time
	// send their next heartbeats at different times.
	heartbeat time.Duration

	objects dynamic.ResourceInterface
	nodes   kubeapi.Nodes
	queue   workqueue.TypedDelayingInterface[string] // its only key is the node's name

	observed observed
	problems problems
	refused  *refusedChanges

	// The following fields are used only by the goroutine that runs the method `work`.
	retry   kubeapi.Retry
	owner   types.UID // UID of the Node when the Node was last read
	applied applied
	claims  followed
	// reducedUntil is the time until which the status has no lists, because the API server has refused a larger object.
	reducedUntil time.Time
}

// New returns a publisher. It does no I/O and starts nothing.
func New(cache Cache, objects dynamic.Interface, nodes kubeapi.Nodes, options Options) *Publisher {
	return &Publisher{
		cache: cache, options: options, heartbeat: nodeqosv1alpha1.HeartbeatInterval - rand.N(heartbeatJitter),
		objects: objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)), nodes: nodes,
		refused:  newRefusedChanges(),
		problems: problems{outcomes: kubeapi.OutcomeLog{What: "publish NodeQOSResources " + options.NodeName, Log: options.Log}},
	}
}

// Run publishes until ctx ends. It retries failed requests.
func (p *Publisher) Run(ctx context.Context) error {
	p.queue = workqueue.NewTypedDelayingQueue[string]()
	group, ctx := errgroup.WithContext(ctx)
	informer := kubeapi.NewInformer(ctx, p.objects, "metadata.name="+p.options.NodeName, &unstructured.Unstructured{}, p.requested)
	handled, err := informer.AddEventHandler(p.eventHandler())
	if err != nil {
		return err
	}

	group.Go(func() error { informer.RunWithContext(ctx); return nil })
	group.Go(func() error { p.watchCache(ctx); return nil })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-handled.HasSyncedChecker().Done():
		}
		kubeapi.Work(ctx, p.queue, p.work)
		return nil
	})
	<-ctx.Done()
	p.queue.ShutDown()
	return group.Wait()
}

// requested records the outcome of a list or watch request. After a success, it enqueues the node.
func (p *Publisher) requested(err error) {
	if p.problems.setWatch(err); err == nil {
		p.enqueue()
	}
}

func (p *Publisher) eventHandler() cache.ResourceEventHandler {
	set := func(object any, deleted bool) {
		if o, ok := object.(*unstructured.Unstructured); ok {
			p.observed.set(o, deleted)
			p.enqueue()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { set(object, false) },
		UpdateFunc: func(_, object any) { set(object, false) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			set(object, true)
		},
	}
}

// watchCache enqueues the node whenever the plugin's state or the content of p.refused changes.
func (p *Publisher) watchCache(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := p.cache.Get()
		p.enqueue()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-p.refused.changed:
		}
	}
}

func (p *Publisher) enqueue() { p.queue.AddAfter(p.options.NodeName, debounce) }

// work reconciles the object. It does nothing during a backoff or while the watch fails. It returns the time after
// which it must be called again; 0 means that it must be called at the next change.
func (p *Publisher) work(ctx context.Context, _ string) time.Duration {
	if wait := p.retry.Wait(); wait > 0 { // a change does not shorten the backoff
		return wait
	}
	if p.problems.ofWatch() != nil {
		return 0 // the next successful list or watch request enqueues the node
	}

	limited, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	next, err := p.reconcile(limited)
	if ctx.Err() != nil {
		return 0
	}

	p.problems.setWrite(err)
	if err != nil {
		p.retry.Failed(err)
		return max(p.retry.Wait(), time.Millisecond)
	}
	p.retry.Reset()
	return next
}
