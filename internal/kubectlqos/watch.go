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

// settleTime is the delay between a change and the next output, so that related changes are shown together. For
// example, a change of a pod and a change of its node are related.
const settleTime = 200 * time.Millisecond

// refreshInterval is how often follow calls the function `show` while nothing changes. The output may still
// differ, because a node's state expires some time after its last report.
const refreshInterval = time.Minute

// liveView follows nodes and pods for a command with --watch.
type liveView struct {
	nodeInformer cache.SharedIndexInformer
	podInformer  cache.SharedIndexInformer // nil without pods
	podNames     []string                  // the pods to show; empty for all
	changed      chan struct{}
	errs         io.Writer

	mu        sync.Mutex // guards lastError
	lastError string
}

// newNodeWatch returns a view that follows the NodeQOSResources of one node, or of all nodes if `node` is "".
func newNodeWatch(api *clients, node string, errs io.Writer) *liveView {
	informer := dynamicinformer.NewFilteredDynamicInformer(
		api.objects, nodeKind(), metav1.NamespaceAll, 0, cache.Indexers{}, selecting(node, ""))
	return &liveView{nodeInformer: informer.Informer(), changed: make(chan struct{}, 1), errs: errs}
}

// newPodWatch returns a view that follows all NodeQOSResources, and the selected pods of a namespace.
func newPodWatch(api *clients, namespace string, names []string, selector string, errs io.Writer) *liveView {
	v := newNodeWatch(api, "", errs)
	v.podNames = names
	name := ""
	if len(names) == 1 {
		name = names[0]
	}
	v.podInformer = coreinformers.NewFilteredPodInformer(api.core, namespace, 0, cache.Indexers{}, selecting(name, selector))
	return v
}

func selecting(name, labels string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.LabelSelector = labels
		if name != "" {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}
	}
}

// follow calls the function `show` after the first list, after every change, and every refreshInterval. It returns nil if
// ctx ends.
func (v *liveView) follow(ctx context.Context, show func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	informers := []cache.SharedIndexInformer{v.nodeInformer}
	if v.podInformer != nil {
		informers = append(informers, v.podInformer)
	}
	var synced []cache.InformerSynced
	for _, informer := range informers {
		if err := v.observe(ctx, informer); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
		synced = append(synced, informer.HasSynced)
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}

	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if err := show(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-v.changed:
		case <-ticker.C:
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
		default: // a change is pending already
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	return errors.Join(err, informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			v.warn(err)
		}
	}))
}

// warn prints an error of a watch. The watch is retried after an error. warn prints a repeated error only once.
func (v *liveView) warn(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // it is normal that the API server ends a watch
	}

	text := explain(err).Error()
	v.mu.Lock()
	defer v.mu.Unlock()
	if text != v.lastError {
		v.lastError = text
		fmt.Fprintln(v.errs, "Trying again:", text)
	}
}

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

func (v *liveView) pods() []corev1.Pod {
	var all []corev1.Pod
	for _, object := range v.podInformer.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok && (len(v.podNames) == 0 || slices.Contains(v.podNames, pod.Name)) {
			all = append(all, *pod)
		}
	}
	return all
}
