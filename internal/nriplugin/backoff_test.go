// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"

	"github.com/qos-nri/qos-nri-plugin/internal/node"
	"github.com/qos-nri/qos-nri-plugin/internal/nriplugin"
)

func TestAttemptsToRegisterAreSpacedAndBeginAnewAfterASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures, all = 12, 16
		var attempts []time.Time
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		dial := func(context.Context, string) (net.Conn, error) {
			attempts = append(attempts, time.Now())
			switch len(attempts) {
			case all:
				cancel()
			case failures + 1:
				return briefRuntime(t), nil
			}
			return nil, errors.New("connection refused")
		}
		n := node.New(node.Options{Log: slog.New(slog.DiscardHandler)})
		if err := nriplugin.New(n, nriplugin.Options{Socket: "x", Index: "10", Dial: dial, Log: slog.New(slog.DiscardHandler)}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		const ms = time.Millisecond
		steps := []time.Duration{
			100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms, 10000 * ms,
			100 * ms, 200 * ms, 400 * ms, // after the success
		}
		shares := map[int]bool{}
		for i, step := range steps {
			wait := attempts[i+1].Sub(attempts[i])
			if wait < step/2 || wait >= step {
				t.Errorf("after attempt %d it waited %s, want at least %s and less than %s", i+1, wait, step/2, step)
			}
			shares[int(100*wait/step)] = true
		}
		if len(shares) < 3 {
			t.Error("the waits have no jitter: nodes whose runtimes restart together would come back together")
		}
	})
}

// briefRuntime is the plugin's end of a connection to a runtime that registers and configures the plugin, and then goes away.
func briefRuntime(t *testing.T) net.Conn {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if err := registerAndConfigure(there); err != nil {
			t.Errorf("the runtime's side: %v", err)
		}
	}()
	return here
}

func registerAndConfigure(conn net.Conn) error {
	mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
	defer mux.Close()
	listener, err := mux.Listen(multiplex.RuntimeServiceConn)
	if err != nil {
		return err
	}
	toPlugin, err := mux.Open(multiplex.PluginServiceConn)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(toPlugin)
	defer client.Close()
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	defer server.Close()
	service := registrations{done: make(chan struct{})}
	api.RegisterRuntimeService(server, service)
	go func() { _ = server.Serve(context.Background(), listener) }() // ends with the server
	mux.Unblock()
	<-service.done
	_, err = api.NewPluginClient(client).Configure(context.Background(), &api.ConfigureRequest{RuntimeName: "brief", RuntimeVersion: "v1"})
	synctest.Wait() // until the plugin serves
	return err
}

// registrations is a runtime's service for one plugin, which it lets register.
type registrations struct{ done chan struct{} }

func (r registrations) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(r.done)
	return &api.Empty{}, nil
}

func (registrations) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("nothing runs")
}
