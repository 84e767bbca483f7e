// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeobject_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	nodeqosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/nodeqos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeobject"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
)

// many is the number of nodes. Each node sends its own requests, so the number of requests is proportional to the
// number of nodes.
const many = 1000

// share is the part of the server that one node uses: a dynamic client with one object, and a client for Nodes.
type share struct {
	*apiserver.Server
	object *unstructured.Unstructured // used by the node's publisher only, one request at a time
}

func (s *share) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return shareOfObjects{share: s}
}

// Get requests a node.
func (s *share) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "uid"}}, s.Ask("get node")
}

type shareOfObjects struct {
	dynamic.NamespaceableResourceInterface // nil, because only the methods below are called
	share                                  *share
}

func (s shareOfObjects) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	return &unstructured.UnstructuredList{}, s.share.Ask("list")
}

// Watch streams the object first, as a server with the feature WatchList does.
func (s shareOfObjects) Watch(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	w, err := s.share.Watch()
	if err != nil || o.SendInitialEvents == nil {
		return w, err
	}

	stream := w.(*apiwatch.RaceFreeFakeWatcher)
	if s.share.object != nil {
		stream.Add(s.share.object.DeepCopy())
	}

	end := &unstructured.Unstructured{}
	end.SetGroupVersionKind(nodeqosv1alpha1.GroupVersion.WithKind(nodeqosv1alpha1.Kind))
	end.SetResourceVersion(s.share.NextVersion())
	end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	stream.Action(apiwatch.Bookmark, end)
	return stream, nil
}

func (s shareOfObjects) Patch(
	_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string,
) (*unstructured.Unstructured, error) {
	if err := s.share.Ask("apply"); err != nil {
		return nil, err
	}

	body := &unstructured.Unstructured{}
	if err := body.UnmarshalJSON(data); err != nil {
		return nil, err
	}

	next := body.DeepCopy()
	if s.share.object != nil {
		next.SetOwnerReferences(s.share.object.GetOwnerReferences())
	}

	if len(subresources) == 0 {
		next.SetOwnerReferences(body.GetOwnerReferences())
	}

	next.SetResourceVersion(s.share.NextVersion())
	s.share.object = next
	return next.DeepCopy(), nil
}

// TestNodesSpreadTheirRequestsAfterAnOutage simulates an outage of the API server in a large cluster. When the server
// is back, all nodes have a change to write.
func TestNodesSpreadTheirRequestsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		caches := make([]*cachetest.Cache, many)
		for i := range caches {
			caches[i] = cachetest.New(ready(0))
			s := &share{Server: server}
			p := nodeobject.New(caches[i], s, s, nodeobject.Options{
				NodeName: fmt.Sprint("n", i), Writes: kubeapi.NewWrites(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
			})
			running.Go(func() { _ = p.Run(ctx) })
		}

		bubble.Pass(time.Minute)

		server.SetDown(true)
		bubble.Pass(2 * time.Minute)
		for _, c := range caches {
			c.Set(described(1))
		}

		bubble.Pass(2 * time.Minute)
		// The delay between two attempts of a node grows to a minute. With an attempt each second, a node would send 240 requests. A node
		// writes nothing while its watch fails.
		if _, asked := server.Counted(); asked["list"]+asked["watch"] > 20*many || asked["apply"] > 0 {
			t.Errorf("too many requests in four minutes of outage: %v", asked)
		}

		server.SetDown(false)
		bubble.Pass(3 * time.Minute)
		peak, asked := server.Counted()
		t.Logf("%d nodes: at most %d requests within a second, %v", many, peak, asked)
		// Each node watches, reads its Node and applies its status, and some nodes also list. These requests are spread over the longest
		// backoff, a minute, which is an average of about many/20 requests per second. The limit is about four times the average.
		if want := many / 5; peak > want {
			t.Errorf("%d requests within a second, want at most %d", peak, want)
		}

		if asked["list"] > many { // a node whose watch begins with the object sends no list request
			t.Errorf("%d list requests, want at most %d", asked["list"], many)
		}

		delete(asked, "list")
		if want := map[string]int{"watch": many, "get node": many, "apply": many}; !maps.Equal(asked, want) {
			t.Errorf("the server got the requests %v, want %v", asked, want)
		}

		cancel()
		running.Wait()
	})
}
