// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListerWatcher lists and watches one kind of object. L is the type of the lists.
type ListerWatcher[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// NewInformer returns an informer for the objects of one type that match a field selector. `example` is an object of this
// type. The caller must run the informer until ctx ends.
//
// After each failed list or watch request, the informer passes the error to `done`. When a watch begins, it passes nil. It
// does not use client-go's error handler, because this handler would miss some failures. After a failure, the informer
// waits as Retry does, in addition to client-go's backoff.
func NewInformer[L runtime.Object](
	ctx context.Context, client ListerWatcher[L], fieldSelector string, example runtime.Object, done func(error),
) cache.SharedIndexInformer {
	var retry Retry
	finish := func(o metav1.ListOptions, err error) {
		switch {
		case ctx.Err() != nil || relists(o, err):
			return
		case err == nil:
			retry.Reset()
			done(nil)
			return
		}
		done(err)
		retry.Failed(err)
		select {
		case <-ctx.Done():
		case <-time.After(retry.Wait()):
		}
	}

	requests := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = fieldSelector
			list, err := client.List(ctx, o)
			if err != nil {
				finish(o, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = fieldSelector
			stream, err := client.Watch(ctx, o)
			finish(o, err)
			return stream, err
		},
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(requests, client), example, 0, cache.Indexers{})
	// This handler replaces client-go's handler, which would log the errors. The call fails only if the informer has
	// already been started.
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	return informer
}

// relists reports whether client-go lists again at once after a request failed with err. client-go does so if the
// server no longer has the last resource version, or if the server cannot stream lists.
func relists(o metav1.ListOptions, err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || o.SendInitialEvents != nil && apierrors.IsInvalid(err)
}
