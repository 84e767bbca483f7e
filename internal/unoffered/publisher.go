// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unoffered writes events of waiting pods that request a class that no node offers, e.g. because its name is misspelled.
package unoffered

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/podevents"
)

const (
	// electInterval is how often a publisher determines whether it is the one that watches waiting pods. While the cluster has no
	// NodeQOSResources yet, it does so each startInterval.
	electInterval = nodeqosv1alpha1.HeartbeatTimeout
	startInterval = 30 * time.Second
	// term is how long one watch lasts. Each watch begins with all waiting pods, so that their events exist longer than the time after
	// which the API server deletes events.
	term = 30 * time.Minute
	// settle is the delay between a pod's first event and the report, so that one list of the nodes covers several pods.
	settle = 10 * time.Second
	// interval is the shortest time between two lists of the nodes.
	interval = time.Minute
	// pageSize limits the memory of one response to a list of the nodes.
	pageSize = 20
	// These limit the pods that wait for a report. A namespace cannot displace the pods of another one until there are many namespaces.
	maxOfNamespace = 50
	maxPods        = 1000
	// The writes have a limit of their own, so that the events of many pods do not delay the conditions of the node's pods.
	writesPerSecond = 1
	writeBurst      = 10
)

// waitingPods selects the pods that have no node.
const waitingPods = "spec.nodeName="

// Options of a Publisher.
type Options struct {
	NodeName string
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Publisher writes the events. A waiting pod has no node, so the publishers of all nodes would see it. Only that of the first node, by
// name, watches these pods: all publishers read the same list of NodeQOSResources, so they need no lease. If two of them watch for some
// time, e.g. because a node has stopped to report, the second one finds the events of the first.
type Publisher struct {
	node    string
	pods    kubeapi.Pods
	objects dynamic.ResourceInterface
	events  *podevents.Recorder
	breaker *kubeapi.Breaker
	log     kubeapi.OutcomeLog

	waiting waiting
	listed  time.Time // when the nodes were last listed
}

// New makes a publisher. It does no I/O and starts nothing.
func New(client kubeapi.Core, objects dynamic.Interface, o Options) *Publisher {
	return &Publisher{
		node: o.NodeName, pods: client.Pods(metav1.NamespaceAll),
		objects: objects.Resource(nodeqosv1alpha1.GroupVersion.WithResource(nodeqosv1alpha1.Plural)),
		events:  podevents.NewRecorder(client, kubeapi.NewWrites(o.Registry), o.NodeName),
		breaker: kubeapi.NewBreaker(writesPerSecond, writeBurst),
		log:     kubeapi.OutcomeLog{What: "report waiting pods whose classes no node offers", Log: o.Log},
	}
}

// Run publishes until ctx ends. Errors delay events; they end nothing.
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
			p.log.Record(err)
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
	p.waiting = waiting{}

	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			due = nil
			if err := p.report(ctx); err != nil {
				return err
			}
		case event, ok := <-stream.ResultChan():
			if !ok {
				return nil
			}
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue // an error, after which the stream ends
			}
			if p.waiting.set(pod, event.Type != watch.Deleted); due == nil && len(p.waiting.pods) > 0 {
				due = time.After(max(settle, time.Until(p.listed.Add(interval))))
			}
		}
	}
}

// report writes the events of the pods that wait for it.
func (p *Publisher) report(ctx context.Context) error {
	var offers offers
	p.listed = time.Now()
	err := p.eachNode(ctx, func(node *nodeqosv1alpha1.NodeQOSResources) bool { offers.add(node); return true })
	if err != nil {
		return err
	}

	pods := p.waiting.pods
	p.waiting = waiting{}
	var failed error
	for id, pod := range pods {
		for _, record := range offers.records(pod) {
			err := p.breaker.Do(ctx, func() error { return p.events.WriteOnce(ctx, id, record) })
			if kubeapi.ServerFailed(err) || errors.Is(err, kubeapi.ErrBreakerOpen) || ctx.Err() != nil {
				return err // the next watch begins with the same pods
			}
			failed = cmp.Or(failed, err) // e.g. because of a quota for events in this namespace
		}
	}
	if failed != nil {
		failed = &kubeapi.About{Kind: "event", Err: failed}
	}
	p.log.Record(failed)
	return nil
}

// eachNode passes the NodeQOSResources of all nodes, in the order of their names, to a function until the function returns false.
func (p *Publisher) eachNode(ctx context.Context, each func(*nodeqosv1alpha1.NodeQOSResources) bool) error {
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := p.objects.List(ctx, options)
		if err != nil {
			return &kubeapi.About{Kind: kubeapi.OurKind, Err: err}
		}
		for i := range list.Items {
			var node nodeqosv1alpha1.NodeQOSResources
			if err := convert(&list.Items[i], &node); err != nil {
				continue // an object that somebody else has written; it offers nothing
			}
			if !each(&node) {
				return nil
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// waiting are pods that wait for a report, with the names of the classes in their limits.
type waiting struct {
	pods map[podevents.Pod][]request
	// ofNamespace is the number of pods by namespace.
	ofNamespace map[string]int
}

func (w *waiting) set(pod *corev1.Pod, exists bool) {
	id := podevents.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	if _, known := w.pods[id]; known {
		delete(w.pods, id)
		w.ofNamespace[pod.Namespace]--
	}
	requests := requestsOf(pod)
	if !exists || len(requests) == 0 || len(w.pods) >= maxPods || w.ofNamespace[pod.Namespace] >= maxOfNamespace {
		return
	}

	if w.pods == nil {
		w.pods, w.ofNamespace = map[podevents.Pod][]request{}, map[string]int{}
	}
	w.pods[id] = requests
	w.ofNamespace[pod.Namespace]++
}
