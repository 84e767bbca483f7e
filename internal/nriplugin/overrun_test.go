// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"

	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// gate delays what the plugin sends, as if the plugin got no CPU time. While the gate is closed, the runtime has a
// short timeout. While it is open, the timeout is long, so that requests do not fail on a slow machine.
type gate struct {
	mu     sync.Mutex    // guards closed
	closed chan struct{} // nil while the gate is open; open closes the channel
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		adaptation.SetPluginRequestTimeout(200 * time.Millisecond)
		g.closed = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		adaptation.SetPluginRequestTimeout(runtimeWaits)
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil {
		<-closed
	}
}

// gated is a connection whose writes pass a gate.
type gated struct {
	net.Conn
	gate *gate
}

func (c gated) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}

// startGated runs the plugin over connections that pass the gate.
func (r *machineRig) startGated(t *testing.T) *gate {
	t.Helper()
	r.stop()
	g, n := &gate{}, r.Synchronizations()
	dial := func(ctx context.Context, socket string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		return gated{conn, g}, err
	}

	ctx, cancel := context.WithCancel(t.Context())
	plugin := nriplugin.New(r.node, nriplugin.Options{Socket: r.Socket(), Index: "10", Dial: dial, Log: slog.New(slog.DiscardHandler)})
	ended := make(chan error, 1)
	go func() { ended <- plugin.Run(ctx) }()
	t.Cleanup(func() {
		g.open()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	r.wait(t, n+1)
	return g
}

// TestALateResponseFailsACreationOrAStartAndThePluginRecovers delays the responses of the plugin. The runtime then disconnects the plugin,
// and fails a creation or a start. A runtime with NRI 0.12.5 or later fails these only because the plugin registers with the failure
// policy FailRequest.
func TestALateResponseFailsACreationOrAStartAndThePluginRecovers(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	g := r.startGated(t)
	const request = "rdt=gold,blockio=fast"
	runs := r.mustRun(t, r.pod(t, "runs", request))
	ends := r.mustRun(t, r.pod(t, "ends", request))
	for _, test := range []struct {
		name string
		do   func(t *testing.T) error
		// fails is true if a late response makes the request fail.
		fails bool
	}{
		// The runtime only logs the failure of a stop or a removal.
		{"a stop", func(t *testing.T) error { return r.StopContainer(t.Context(), ends) }, false},
		{"a removal", func(t *testing.T) error { return r.RemoveContainer(t.Context(), ends) }, false},
		{"a creation", func(t *testing.T) error {
			_, err := r.run(t, r.pod(t, "late", request))
			return err
		}, true},
		{"a start", func(t *testing.T) error {
			id := r.created(t, g, request)
			return r.StartContainer(t.Context(), id)
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := r.Synchronizations()
			g.close()
			err := test.do(t)
			g.open()
			if test.fails != (err != nil) || err != nil && !strings.Contains(err.Error(), "10-qos-nri-plugin failed to handle") {
				t.Errorf("the error is %v, want an error: %t", err, test.fails)
			}
			r.wait(t, n+1)
			r.node.Reconcile(t.Context())
			r.world.Hold(t)
			r.wantReported(t, runs, groups, "gold/pod")
			r.wantOneMore(t, request)
		})
	}
}

// created creates a container while the gate is open, and closes the gate again.
func (r *machineRig) created(t *testing.T, g *gate, request string) string {
	t.Helper()
	g.open()
	defer g.close()
	id := r.create(t, r.pod(t, "made", request))
	return id
}

// wantOneMore checks that exactly one of the two slots of the requested class is free.
func (r *machineRig) wantOneMore(t *testing.T, request string) {
	t.Helper()
	pod := r.pod(t, "another", request)
	r.mustRun(t, pod)
	if _, err := r.run(t, r.pod(t, "too-many", request)); err == nil {
		t.Error("more than two slots are free")
	}
	if err := r.RemovePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
	r.world.Hold(t)
}
