// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectlqos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// settleTime gathers changes that come together, as that of a pod and of its node.
const settleTime = 200 * time.Millisecond

// liveView follows objects of the cluster. Until it has all of them, it shows nothing.
type liveView struct {
	nodeInformer cache.SharedIndexInformer
	podInformer  cache.SharedIndexInformer // nil when pods are not followed
	changed      chan struct{}
	errs         io.Writer

	mu   sync.Mutex // guards last
	last string     // the last problem that was told
}

func newLiveView(errs io.Writer, node, pod cache.SharedIndexInformer) *liveView {
	return &liveView{nodeInformer: node, podInformer: pod, changed: make(chan struct{}, 1), errs: errs}
}

// newNodeWatch follows NodeQOSResources: those of one node, or with "" of all.
func newNodeWatch(api *clients, node string, errs io.Writer) *liveView {
	return newLiveView(errs, nodeInformer(api, node), nil)
}

// newPodWatch follows NodeQOSResources, and the pods of a namespace that are selected.
func newPodWatch(api *clients, namespace, name, selector string, errs io.Writer) *liveView {
	tweak := func(options *metav1.ListOptions) {
		options.LabelSelector = selector
		if name != "" {
			options.FieldSelector = named(name)
		}
	}
	pods := coreinformers.NewFilteredPodInformer(api.core, namespace, 0, cache.Indexers{}, tweak)
	return newLiveView(errs, nodeInformer(api, ""), pods)
}

func nodeInformer(api *clients, name string) cache.SharedIndexInformer {
	tweak := func(options *metav1.ListOptions) {
		if name != "" {
			options.FieldSelector = named(name)
		}
	}
	return dynamicinformer.NewFilteredDynamicInformer(api.objects, nodeKind(), metav1.NamespaceAll, 0, cache.Indexers{}, tweak).Informer()
}

func named(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

func (v *liveView) informers() []cache.SharedIndexInformer {
	if v.podInformer == nil {
		return []cache.SharedIndexInformer{v.nodeInformer}
	}
	return []cache.SharedIndexInformer{v.nodeInformer, v.podInformer}
}

// follow calls show once all objects are known and after every change, until ctx ends, which is no error.
func (v *liveView) follow(ctx context.Context, show func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, informer := range v.informers() {
		if err := v.observe(ctx, informer); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, informer := range v.informers() {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return nil
		}
	}
	for {
		if err := show(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settleTime):
		}
	}
}

func (v *liveView) observe(ctx context.Context, informer cache.SharedIndexInformer) error {
	notify := func() {
		select {
		case v.changed <- struct{}{}:
		default: // it is known that something changed
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	return errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			v.complain(err)
		}
	}))
}

// complain tells what is wrong with a watch, which is tried again; the same thing once.
func (v *liveView) complain(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // a watch ends now and then
	}
	text := explain(err).Error()
	v.mu.Lock()
	defer v.mu.Unlock()
	if text != v.last {
		v.last = text
		fmt.Fprintln(v.errs, "Trying again:", text)
	}
}

// nodes are the present NodeQOSResources, by name.
func (v *liveView) nodes() []unstructured.Unstructured {
	var all []unstructured.Unstructured
	for _, object := range v.nodeInformer.GetStore().List() {
		if node, ok := object.(*unstructured.Unstructured); ok {
			all = append(all, *node)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

// pods are the present pods, in no order.
func (v *liveView) pods() []corev1.Pod {
	var all []corev1.Pod
	for _, object := range v.podInformer.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok {
			all = append(all, *pod)
		}
	}
	return all
}
