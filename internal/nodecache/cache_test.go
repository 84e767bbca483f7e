// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodecache_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodecache"
	"github.com/qos-nri/qos-nri-plugin/test/apitest"
	"github.com/qos-nri/qos-nri-plugin/test/must"
)

// serve runs a node API until `stop` is called.
func serve(t *testing.T, socket string, n *apitest.Node) (stop func()) {
	t.Helper()
	server := nodeapi.New(n, nodeapi.Options{Socket: socket, Version: "v9", Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("node API: %v", err)
		}
	}
}

func startCache(t *testing.T, socket string) *nodecache.Cache {
	t.Helper()
	cache := nodecache.New(socket, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- cache.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("cache: %v", err)
		}
	})
	return cache
}

// await waits for a state.
func await(t *testing.T, cache *nodecache.Cache, what string, good func(nodecache.State) bool) nodecache.State {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		state, changed := cache.Get()
		if good(state) {
			return state
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("timeout while waiting until %s; last state: ready %v, problem %q", what, state.Ready(), state.Problem)
		}
	}
}

func ready(s nodecache.State) bool { return s.Ready() }

func socketPath(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "cache"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "qos.sock")
}

func TestTheLastReadyStateIsKeptWhileThePluginIsNotReady(t *testing.T) {
	socket := socketPath(t)
	cache := startCache(t, socket)
	early := await(t, cache, "the cache reports that nothing answers", func(s nodecache.State) bool { return strings.Contains(s.Problem, socket) })
	if early.Ready() || early.Status != nil {
		t.Errorf("before the plugin was ready, the cache has %+v", early)
	}

	n := apitest.NewNode()
	stop := serve(t, socket, n)
	waiting := await(t, cache, "the cache reports missing class files", func(s nodecache.State) bool { return strings.Contains(s.Problem, "class files") })
	if waiting.Latest == nil || waiting.Status != nil {
		t.Errorf("without class files, Latest is %v and Status is %v; want only Latest", waiting.Latest, waiting.Status)
	}

	must.Do(t, n.Load(t.Context(), apitest.Files))
	await(t, cache, "the plugin is ready", ready)
	must.Do(t, n.RunPod(t.Context(), "default", "web", "rdt=gold", "main"))
	await(t, cache, "the cache has the pod", func(s nodecache.State) bool { return len(s.Assignments.GetPods()) == 1 })

	n.Disconnected()
	kept := await(t, cache, "the cache reports that the runtime is gone", func(s nodecache.State) bool {
		return !s.Ready() && !s.Latest.GetRuntime().GetRegistered() // both streams have reported it
	})

	if !kept.Status.GetRuntime().GetRegistered() || len(kept.Assignments.GetPods()) != 1 {
		t.Errorf("without the runtime, the cache has %+v; want the last ready state, and Latest", kept)
	}

	stop()
	gone := await(t, cache, "the cache reports that the plugin is gone", func(s nodecache.State) bool { return s.Latest == nil })
	if !gone.NotReadySince.Equal(kept.NotReadySince) || gone.Status == nil {
		t.Errorf("not ready since %v with status %v; want since %v, with the last ready status", gone.NotReadySince, gone.Status, kept.NotReadySince)
	}
	defer serve(t, socket, restarted(t))()
	back := await(t, cache, "the plugin is ready again", ready)
	if len(back.Assignments.GetPods()) != 0 {
		t.Errorf("the restarted plugin has %v; want its own assignments", back.Assignments)
	}
}

func restarted(t *testing.T) *apitest.Node {
	t.Helper()
	n := apitest.NewNode()
	must.Do(t, n.Load(t.Context(), apitest.Files))
	return n
}
