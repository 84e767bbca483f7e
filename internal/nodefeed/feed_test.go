// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodefeed_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi/apitest"
	"github.com/qos-nri/qos-nri-plugin/internal/nodefeed"
)

// serve runs a node API until stop is called.
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

func follow(t *testing.T, socket string) *nodefeed.Feed {
	t.Helper()
	feed := nodefeed.New(socket, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- feed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("feed: %v", err)
		}
	})
	return feed
}

// await waits for a state.
func await(t *testing.T, feed *nodefeed.Feed, what string, good func(nodefeed.State) bool) nodefeed.State {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		state, changed := feed.Get()
		if good(state) {
			return state
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("never %s; last: ready %v, problem %q", what, state.Ready(), state.Problem)
		}
	}
}

func ready(s nodefeed.State) bool { return s.Ready() }

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "qos.sock")
}

func TestItFollowsThePluginAndKeepsTheLastStateWhileThatIsAway(t *testing.T) {
	socket := socketPath(t)
	feed := follow(t, socket)
	away := await(t, feed, "told that nobody answers", func(s nodefeed.State) bool { return strings.Contains(s.Problem, socket) })
	if away.Ready() || away.Status != nil {
		t.Errorf("ready before the plugin ever was: %+v", away)
	}

	n := apitest.NewNode()
	stop := serve(t, socket, n)
	waiting := await(t, feed, "told of missing class files", func(s nodefeed.State) bool { return strings.Contains(s.Problem, "class files") })
	if waiting.Latest == nil || waiting.Status != nil {
		t.Errorf("without class files: latest %v, status %v; want only the latest", waiting.Latest, waiting.Status)
	}
	if err := n.Load(t.Context(), apitest.Files); err != nil {
		t.Fatal(err)
	}
	await(t, feed, "ready", ready)
	if err := n.RunPod(t.Context(), "default", "web", "rdt=gold", "main"); err != nil {
		t.Fatal(err)
	}
	await(t, feed, "told of the pod", func(s nodefeed.State) bool { return len(s.Assignments.GetPods()) == 1 })

	n.Disconnected()
	kept := await(t, feed, "told that the runtime is away", func(s nodefeed.State) bool {
		return !s.Ready() && !s.Latest.GetRuntime().GetRegistered() // by both streams
	})
	if !kept.Status.GetRuntime().GetRegistered() || len(kept.Assignments.GetPods()) != 1 {
		t.Errorf("without the runtime: %+v; want the state of before, and the latest beside it", kept)
	}
	stop()
	gone := await(t, feed, "told that the plugin is away", func(s nodefeed.State) bool { return s.Latest == nil })
	if !gone.AwaySince.Equal(kept.AwaySince) || gone.Status == nil {
		t.Errorf("away since %v; want since it was not ready, %v, with the state of then", gone.AwaySince, kept.AwaySince)
	}
	defer serve(t, socket, restarted(t))()
	back := await(t, feed, "ready again", ready)
	if len(back.Assignments.GetPods()) != 0 {
		t.Errorf("the plugin that came back has %v; want its own assignments", back.Assignments)
	}
}

func restarted(t *testing.T) *apitest.Node {
	t.Helper()
	n := apitest.NewNode()
	if err := n.Load(t.Context(), apitest.Files); err != nil {
		t.Fatal(err)
	}
	return n
}
