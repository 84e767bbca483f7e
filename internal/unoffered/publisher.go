// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unoffered writes events of waiting pods that request a class that no node offers, e.g. because its name is misspelled.
package unoffered

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

const (
	// electInterval is how often a publisher determines whether it must watch waiting pods. While the cluster has no
	// NodeQOSResources yet, it does so every startInterval.
	electInterval = nodeqosv1alpha1.HeartbeatTimeout
	startInterval = 30 * time.Second
	// term is the duration of one watch. Each watch begins with all waiting pods, so events that the API server has
	// deleted because of their age are created again.
	term = 30 * time.Minute
	// settle is the delay between two reports, and maxWrites is the number of events that one report writes. The reports
	// are slow, so that they do not delay the conditions of the node's pods.
	settle    = 10 * time.Second
	maxWrites = 10
	// interval is the shortest time between two lists of the nodes. They are listed again if a pod waits for a class that they do not
	// offer, and after maxAge.
	interval = time.Minute
	maxAge   = 10 * time.Minute
	// maxEntries is the approximate number of holders, refusals and volumes of all nodes in one response. One object can
	// have thousands of them, and more than 1 MiB. maxPage is the maximum number of nodes in a response.
	maxEntries = 4000
	maxPage    = 100
	// listShare limits the share of the time in which the nodes are listed: the publisher waits listShare times the
	// duration of a list before it repeats the list. In a cluster of 5,000 nodes, a list takes longer than the interval.
	listShare = 10
)

// waitingPods selects the pods that have no node.
const waitingPods = "spec.nodeName="

// Options of a Publisher.
type Options struct {
	NodeName string
	Writes   *kubeapi.Writes
	Log      *slog.Logger
}

// Publisher writes the events. A waiting pod has no node, so the publishers of all nodes would see it. Only the publisher
// of the first node, by name, watches these pods. All publishers read the same list of NodeQOSResources, so they need no
// lease. If two publishers watch for some time, e.g. because a node has stopped reporting, the second one finds the
// events of the first one.
type Publisher struct {
	node    string
	pods    kubeapi.Pods
	objects dynamic.ResourceInterface
	events  *podevents.Recorder
	log     kubeapi.OutcomeLog

	offers offers
	next   time.Time // the earliest time of the next list of the nodes
	// `queue` has the pods of the present watch. `rejected` is the first error of this watch that concerns only the
	// events of one namespace.
	queue    *queue
	rejected error
}

// New makes a publisher. It does no I/O and starts nothing.
func New(client kubeapi.Core, objects dynamic.Interface, o Options) *Publisher {
	return &Publisher{
		node: o.NodeName, pods: client.Pods(metav1.NamespaceAll),
		objects: objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)),
		events:  podevents.NewRecorder(client, o.Writes, o.NodeName),
		log:     kubeapi.OutcomeLog{What: "report waiting pods whose classes no node offers", Log: o.Log},
	}
}

// Run publishes until ctx ends. Errors only delay events.
func (p *Publisher) Run(ctx context.Context) error {
	wait := startInterval
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait/2)):
		}

		first, err := p.first(ctx)
		wait = electInterval
		switch {
		case err == nil && first == p.node:
			wait, err = startInterval, p.watch(ctx)
		case err == nil && first == "":
			wait = startInterval
		}
		if ctx.Err() == nil {
			p.log.Record(cmp.Or(err, p.rejected))
		}
	}
}

// first returns the name of the first node that reports, or "" if none does.
func (p *Publisher) first(ctx context.Context) (name string, err error) {
	err = p.eachNode(ctx, func(node *nodeqosv1alpha1.NodeQOSResources) bool {
		if node.Status.LastHeartbeatTime != nil && !node.Status.Expired(time.Now()) {
			name = node.Name
		}
		return name == ""
	})
	return name, err
}

// watch reports waiting pods until the watch ends.
func (p *Publisher) watch(ctx context.Context) error {
	options := metav1.ListOptions{
		FieldSelector: waitingPods, ResourceVersion: "0", // begins with all waiting pods
		TimeoutSeconds: new(int64(term / time.Second)),
	}
	stream, err := p.pods.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer stream.Stop()

	p.queue, p.rejected = &queue{}, nil
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { p.reports(ctx) })
	defer reporting.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-stream.ResultChan():
			if !ok {
				return nil
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok { // the API server ends the watch
				return apierrors.FromObject(event.Object)
			}
			p.queue.set(pod, event.Type != watch.Deleted)
		}
	}
}

// reports makes reports until ctx ends.
func (p *Publisher) reports(ctx context.Context) {
	for retry := (kubeapi.Retry{}); ; {
		pause.For(ctx, max(settle, retry.Wait()))
		err := p.report(ctx)
		if ctx.Err() != nil {
			return
		}

		if err != nil {
			retry.Failed(err)
		} else {
			retry.Reset()
		}
		p.log.Record(cmp.Or(err, p.rejected))
	}
}

// report writes events of pods in the queue. An error means that other requests would fail, too.
func (p *Publisher) report(ctx context.Context) error {
	if p.queue.empty() {
		return nil
	}
	if time.Since(p.offers.listed) > maxAge || (p.queue.judge(&p.offers) && time.Now().After(p.next)) {
		if err := p.list(ctx); err != nil {
			return err
		}
		p.queue.judge(&p.offers)
	}

	for range maxWrites {
		pod, ok := p.queue.next(p.offers.listed)
		if !ok {
			return nil
		}
		err := p.events.WriteOnce(ctx, pod.Pod, p.offers.record(&pod))
		p.queue.written(pod, err)
		if err == nil {
			continue
		}

		err = &kubeapi.About{Kind: "event", Err: err}
		if kubeapi.ServerFailed(err) && kubeapi.OutcomeOf(err) != kubeapi.TooMany {
			return err
		}
		p.rejected = cmp.Or(p.rejected, err) // e.g. by a quota or a rate limit for the events of a namespace
	}
	return nil
}

// list replaces the offers.
func (p *Publisher) list(ctx context.Context) error {
	offers := newOffers()
	err := p.eachNode(ctx, func(node *nodeqosv1alpha1.NodeQOSResources) bool { offers.add(node); return true })
	if err == nil {
		p.offers, p.next = offers, time.Now().Add(max(interval, listShare*time.Since(offers.listed)))
	}
	return err
}

// eachNode passes the NodeQOSResources of all nodes, in the order of their names, to a function until the function returns false. The first
// response has one node, because most publishers need only this one, and the next ones have up to twice as many as the previous one.
func (p *Publisher) eachNode(ctx context.Context, each func(*nodeqosv1alpha1.NodeQOSResources) bool) error {
	largest := 1 // number of entries of a node
	for options := (metav1.ListOptions{Limit: 1}); ; options.Limit = max(1, min(2*options.Limit, maxPage, int64(maxEntries/largest))) {
		list, err := p.objects.List(ctx, options)
		if err != nil {
			return &kubeapi.About{Kind: kubeapi.OurKind, Err: err}
		}
		for i := range list.Items {
			var node nodeqosv1alpha1.NodeQOSResources
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &node); err != nil {
				continue // an object that somebody else has written; it offers nothing
			}
			if !each(&node) {
				return nil
			}
			largest = max(largest, entries(&node.Status))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// entries returns the number of entries in those lists of a node that can make its object large.
func entries(status *nodeqosv1alpha1.NodeQOSResourcesStatus) int {
	count := len(status.Refusals) + len(status.Volumes)
	for _, resource := range status.QOSResources.All() {
		count += len(resource.Foreign)
		for i := range resource.Classes {
			count += len(resource.Classes[i].Holders)
		}
	}
	return count
}
