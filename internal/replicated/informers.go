// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package replicated

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
)

// Informers are the informers of a controller.
type Informers []cache.SharedIndexInformer

// Watch adds an informer, and calls `enqueue` with each object that is added, changed or deleted. It ignores changes for which `ignore`
// returns true; nil ignores none.
func (all *Informers) Watch(informer cache.SharedIndexInformer, enqueue func(object any), ignore func(before, now any) bool) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue,
		UpdateFunc: func(before, now any) {
			if ignore == nil || !ignore(before, now) {
				enqueue(now)
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			enqueue(object)
		},
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	*all = append(*all, informer)
	return nil
}

// Start runs the informers until ctx ends. A replica that does not lead runs them too, so that it can lead at once.
func (all Informers) Start(ctx context.Context, group *errgroup.Group) {
	for _, informer := range all {
		group.Go(func() error { informer.RunWithContext(ctx); return nil })
	}
}

// Ready returns an error until all informers have listed their objects.
func (all Informers) Ready() error {
	for _, informer := range all {
		if !informer.HasSynced() {
			return errors.New("not all objects of the Kubernetes API are listed yet; if this lasts, the log has the reason")
		}
	}
	return nil
}

// Work calls `reconcile` with the keys of a queue until ctx ends. `reconcile` returns the time after which Work calls
// it again with this key; 0 means that no call is needed until the key is enqueued again. Work first waits until the
// informers have listed their objects.
func (all Informers) Work(ctx context.Context, queue workqueue.TypedDelayingInterface[string], reconcile func(context.Context, string) time.Duration) {
	for _, informer := range all {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return
		}
	}
	defer context.AfterFunc(ctx, queue.ShutDown)() // ends Work
	kubeapi.Work(ctx, queue, reconcile)
}

// Retrying returns a function for Work. If `reconcile` returns true, it is called again with this key, after a time that grows.
func Retrying(
	queue workqueue.TypedRateLimitingInterface[string], reconcile func(key string) (again bool),
) func(context.Context, string) time.Duration {
	return func(_ context.Context, key string) time.Duration {
		if reconcile(key) {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		return 0
	}
}

// Get returns an object of an informer, or the zero value if there is none.
func Get[T any](informer cache.SharedIndexInformer, key string) (typed T, err error) {
	object, exists, err := informer.GetStore().GetByKey(key)
	if err != nil || !exists {
		return typed, err
	}
	typed, ok := object.(T)
	if !ok {
		return typed, fmt.Errorf("%s is a %T", key, object)
	}
	return typed, nil
}

// IdentityOf returns the metadata that informers keep of every object: its identity, its versions, and the time of its deletion.
func IdentityOf(object metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		Generation: object.GetGeneration(), DeletionTimestamp: object.GetDeletionTimestamp(),
	}
}
