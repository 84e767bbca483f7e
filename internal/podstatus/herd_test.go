// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/qos-nri/qos-nri-plugin/internal/kubeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/internal/podstatus"
	"github.com/qos-nri/qos-nri-plugin/test/apiserver"
	"github.com/qos-nri/qos-nri-plugin/test/bubble"
	"github.com/qos-nri/qos-nri-plugin/test/cachetest"
)

// many is the number of nodes. Each node sends its own requests, so the number of requests is proportional to the
// number of nodes.
const many = 250

// nodeClient is the API client of the publisher of one node. It has only the methods that the publisher uses. Each node has one pod.
type nodeClient struct {
	kubeapi.Core
	server *apiserver.Server
}

func (s nodeClient) Pods(string) kubeapi.Pods { return podClient{server: s.server} }

type podClient struct {
	kubeapi.Pods
	server *apiserver.Server
}

func (s podClient) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	if err := s.server.Ask("list"); err != nil {
		return nil, err
	}
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*pod("a")}}, nil
}

func (s podClient) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if o.SendInitialEvents != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
	}
	return s.server.Watch()
}

func (s podClient) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod, error) {
	return pod("a"), s.server.Ask("apply")
}

// TestNodesSpreadTheirRequestsAfterAnOutageOfTheAPIServer changes the class of a pod on each node while the API server
// is unavailable.
func TestNodesSpreadTheirRequestsAfterAnOutageOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		plugins := make([]*plugin, many)
		for i := range plugins {
			plugins[i] = &plugin{cachetest.New(nodecache.State{NotReadySince: time.Now()})}
			plugins[i].set(nil, "a=gold")
			p := podstatus.New(plugins[i], nodeClient{server: server}, podstatus.Options{
				NodeName: fmt.Sprint("n", i), Conditions: true, Writes: kubeapi.NewWrites(prometheus.NewRegistry()),
				Registry: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
			})
			running.Go(func() { _ = p.Run(ctx) })
		}

		bubble.Pass(2 * time.Minute)

		server.SetDown(true)
		bubble.Pass(2 * time.Minute)
		for _, p := range plugins {
			p.set(nil, "a=silver")
		}

		bubble.Pass(2 * time.Minute)
		_, away := server.Counted()
		server.SetDown(false)
		bubble.Pass(3 * time.Minute)
		peak, requests := server.Counted()
		t.Logf("%d nodes: requests while the API server was away: %v; then at most %d requests within a second: %v", many, away, peak, requests)
		// Each node lists and watches its pods, and applies a status. These 3 * many requests are spread over the longest backoff, a
		// minute, which is an average of many/20 requests per second. The limit is four times the average.
		if want := many / 5; peak > want {
			t.Errorf("%d requests within a second, want at most %d", peak, want)
		}

		// This leaves room for one more request of each node.
		if requests["apply"] < many || requests["list"]+requests["watch"]+requests["apply"] > 4*many {
			t.Errorf("the requests are %v, want at least %d applies, and at most %d requests in all", requests, many, 4*many)
		}

		cancel()
		running.Wait()
	})
}
