// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// mirror has the object as it is in the API, as far as that is known.
type mirror struct {
	mu sync.Mutex // guards all below
	// current is false before the API server was asked, and while it cannot be.
	current bool
	// object is nil when there is none.
	object *unstructured.Unstructured
	// seen is the newest resource version known, of the object or of its absence.
	seen string
	// generation counts how often the API server had to be asked from the beginning.
	generation int
}

// get returns the object, and ok if it is known how it is.
func (m *mirror) get() (object *unstructured.Unstructured, generation int, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.object, m.generation, m.current
}

// restart takes what a list at version says.
func (m *mirror) restart(object *unstructured.Unstructured, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current, m.object, m.seen = true, object, version
	m.generation++
}

// update takes the object, nil if it was deleted, as it is at version. What is older than what is known changes nothing: the watch tells
// of a write after the answer to that write has told already.
func (m *mirror) update(object *unstructured.Unstructured, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(version, m.seen); err == nil && order <= 0 {
		return
	}
	m.object, m.seen = object, version
}

func (m *mirror) lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = false
}

// followObject keeps the mirror as the object is, until ctx ends.
func (p *Publisher) followObject(ctx context.Context) error {
	report := kubeapi.Report{What: "watch NodeQOSResources " + p.node, Log: p.log}
	var backoff kubeapi.Backoff
	for ctx.Err() == nil {
		began := p.now()
		err := p.listAndWatch(ctx, &report)
		if ctx.Err() != nil {
			break
		}
		p.mirror.lost()
		if !expired(err) { // else too much happened elsewhere since the last event of ours; that is no failure
			report.Tell(err)
		}
		if p.now().Sub(began) > time.Minute {
			backoff.Reset()
		}
		pause.For(ctx, backoff.Next(err, rand.Float64()))
	}
	return nil
}

// listAndWatch asks how the object is and then follows its changes, until that fails. Only the object of this name is asked for.
func (p *Publisher) listAndWatch(ctx context.Context, report *kubeapi.Report) error {
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + p.node}
	list, err := p.objects.List(ctx, only)
	if err != nil {
		return fmt.Errorf("list NodeQOSResources: %w", err)
	}
	report.Tell(nil)
	var object *unstructured.Unstructured
	if len(list.Items) > 0 {
		object = &list.Items[0]
	}
	p.mirror.restart(object, list.GetResourceVersion())
	p.loop.Trigger()
	only.ResourceVersion, only.AllowWatchBookmarks = list.GetResourceVersion(), true
	var backoff kubeapi.Backoff
	for {
		began := p.now()
		stream, err := p.objects.Watch(ctx, only)
		if err != nil {
			return fmt.Errorf("watch NodeQOSResources: %w", err)
		}
		if only.ResourceVersion, err = p.follow(stream, only.ResourceVersion); err != nil {
			return fmt.Errorf("watch NodeQOSResources: %w", err)
		}
		// The API server ends every watch some time; when it goes away, it ends all of them at once.
		if p.now().Sub(began) > time.Minute {
			backoff.Reset()
		}
		pause.For(ctx, backoff.Next(nil, rand.Float64()))
	}
}

// follow takes what a watch tells, until it ends, and gives the version from which to go on.
func (p *Publisher) follow(stream watch.Interface, version string) (string, error) {
	defer stream.Stop()
	for event := range stream.ResultChan() {
		if event.Type == watch.Error {
			return version, p.broken(apierrors.FromObject(event.Object))
		}
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		version = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		if event.Type == watch.Deleted {
			object = nil
		}
		p.mirror.update(object, version)
		p.loop.Trigger()
	}
	return version, nil
}

// broken takes an error that a watch ended with, and gives it if only asking from the beginning helps. Any other is mostly of a connection
// that was lost; whether there is more to tell shows when it is made again.
func (p *Publisher) broken(err error) error {
	if expired(err) {
		return err
	}
	p.log.Debug("the watch of NodeQOSResources ended", "name", p.node, "problem", err)
	return nil
}

// expired says whether err is the API server's that it no longer knows what came after a version.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }
