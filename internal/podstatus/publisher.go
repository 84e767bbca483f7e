// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podrequests"
)

const (
	// gather is for how long changes of one pod are gathered: its containers come one after the other.
	gather = 500 * time.Millisecond
	// When more than crowd pods change together, as by other class files, other nodes do so, too: each is looked at some time within spread.
	crowd  = 10
	spread = time.Minute
	// workers are pods that are dealt with at a time. Waiting for the plugin or the API is most of the work.
	workers = 2
	// Of the requests that the shim may make, this part leaves some to the others.
	writesPerSecond = 5
	writeBurst      = 10
)

// Feed has what the plugin told last; nodecache.Cache is one.
type Feed interface {
	Get() (state nodecache.State, changed <-chan struct{})
}

// Options say what a Publisher tells.
type Options struct {
	// NodeName is the node whose pods these are. It is needed: no others are ever asked for.
	NodeName string
	// Conditions and Events say what is written. Without them, pods are watched all the same.
	Conditions, Events bool
	// FollowAnnotations says that Update is asked for other classes when the annotations of a running pod ask for them.
	FollowAnnotations bool
	Update            podrequests.Update
	Registry          prometheus.Registerer
	Log               *slog.Logger
}

// Publisher tells on the pods of a node which classes they have.
type Publisher struct {
	feed     Feed
	client   kubernetes.Interface
	options  Options
	informer cache.SharedIndexInformer
	queue    workqueue.TypedDelayingInterface[string] // namespace/name
	gate     *gate
	writes   *kubeapi.Writes
	events   *eventWriter
	follower *podrequests.Follower
	present  atomic.Pointer[snapshot]
	changes  changes
	pods     pods
	log      teller
	watching watching
}

// New makes a publisher. It starts nothing.
func New(feed Feed, client kubernetes.Interface, options Options) *Publisher {
	p := &Publisher{
		feed: feed, client: client, options: options,
		gate:     newGate(),
		writes:   kubeapi.NewWrites(options.Registry),
		follower: podrequests.NewFollower(options.Update),
		changes:  changes{byPod: map[podKey][]occurrence{}},
		pods:     pods{known: map[string]*memory{}},
		log:      teller{log: options.Log, troubles: map[trouble]*affected{}},
		watching: watching{report: kubeapi.Report{What: "watch the pods of this node", Log: options.Log}},
	}
	p.informer = podsOf(client, options.NodeName, func() { p.watching.tell(nil) })
	p.events = &eventWriter{
		client: client.CoreV1(), node: options.NodeName, allow: p.gate.pass,
		took: p.gate.took, count: func(err error) error { return p.writes.Count("event", err) },
	}
	options.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "qos_shim_pods", Help: "Pods of this node that the shim knows of from the Kubernetes API.",
	}, func() float64 { return float64(len(p.informer.GetStore().ListKeys())) }))
	return p
}

// podsOf are the pods of one node, as small as can be. watched is called whenever they are watched, which is after they were listed.
func podsOf(client kubernetes.Interface, node string, watched func()) cache.SharedIndexInformer {
	selector := fields.OneTermEqualSelector("spec.nodeName", node).String()
	all := client.CoreV1().Pods(metav1.NamespaceAll)
	return cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			stream, err := all.Watch(ctx, o)
			if err == nil {
				watched()
			}
			return stream, err
		},
	}, client), &corev1.Pod{}, cache.SharedIndexInformerOptions{})
}

// Run tells until ctx ends. It returns an error only when it cannot begin.
func (p *Publisher) Run(ctx context.Context) error {
	if p.options.NodeName == "" {
		return errors.New("watch the pods of this node: the node has no name; give it by --node-name")
	}
	p.queue = workqueue.NewTypedDelayingQueue[string]()
	if err := p.informer.SetTransform(strip); err != nil {
		return err
	}
	if err := p.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !apiWatchEnded(err) {
			p.watching.tell(err)
		}
	}); err != nil {
		return err
	}
	handled, err := p.informer.AddEventHandler(p.handler())
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.informer.RunWithContext(ctx); return nil })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-handled.HasSyncedChecker().Done():
			p.enqueueAll(p.informer.GetStore().ListKeys())
		}
		return nil
	})
	group.Go(func() error { p.watch(ctx); return nil })
	for range workers {
		group.Go(func() error { p.work(ctx); return nil })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	return group.Wait()
}

// handler lets pods be looked at when something of them has changed that is told or followed. Those that are there in the
// beginning are looked at when all of them are known.
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
		p.queue.AddAfter(key, gather)
	}
}

// enqueueAll lets pods be looked at that changed together.
func (p *Publisher) enqueueAll(keys []string) {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, key := range keys {
		wait := gather
		if len(keys) > crowd {
			wait += rand.N(spread - gather)
		}
		p.queue.AddAfter(key, wait)
	}
}

// watch looks at pods of which the plugin tells something new; at all of them after it was away.
func (p *Publisher) watch(ctx context.Context) {
	for {
		state, changed := p.feed.Get()
		next, before := newSnapshot(state), p.present.Load()
		p.present.Store(next)
		switch {
		case !next.ready:
		case before == nil || !before.ready:
			p.changes.note(before, next)
			p.enqueueAll(p.informer.GetStore().ListKeys())
		default:
			p.changes.note(before, next)
			p.enqueueAll(next.differs(before))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (p *Publisher) work(ctx context.Context) {
	for {
		key, ending := p.queue.Get()
		if ending {
			return
		}
		if again := p.reconcile(ctx, key); again > 0 {
			p.queue.AddAfter(key, again)
		}
		p.queue.Done(key)
	}
}

// apply writes a condition, and nothing else of the pod. It returns the pod as it is then.
func (p *Publisher) apply(ctx context.Context, pod *corev1.Pod, want *corev1.PodCondition) (*corev1.Pod, error) {
	if err := p.gate.pass(ctx); err != nil {
		return nil, err
	}
	after, err := p.client.CoreV1().Pods(pod.Namespace).ApplyStatus(ctx, applied(pod, want), metav1.ApplyOptions{
		FieldManager: FieldManager, Force: true,
	})
	return after, p.writes.Count("pod-condition", p.gate.took(err))
}
