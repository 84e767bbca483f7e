// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriruntime

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
)

// DieDuringHandshake listens at `socket`, answers the registration of the first plugin that connects, and then drops
// the plugin without configuring it, like a runtime that is killed at this moment. `died` is closed when the socket is
// gone.
func DieDuringHandshake(socket string) (died <-chan struct{}, err error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for a plugin: %w", err)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		defer listener.Close()
		if conn, err := listener.Accept(); err == nil {
			defer conn.Close()
			_ = AnswerRegistration(conn, nil)
		}
	}()

	return done, nil
}

// AnswerRegistration answers the registration of a plugin on a connection. If `then` is nil, it ends without configuring the plugin.
// Otherwise it passes a client of the plugin to `then`.
func AnswerRegistration(conn net.Conn, then func(api.PluginService) error) error {
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
	service := registration{done: make(chan struct{})}
	api.RegisterRuntimeService(server, service)
	go func() { _ = server.Serve(context.Background(), listener) }() // ends with the server
	mux.Unblock()
	<-service.done
	if then == nil {
		return server.Shutdown(context.Background()) // waits until the answer is sent
	}
	return then(api.NewPluginClient(client))
}

// registration is a runtime service that only accepts the registration of one plugin.
type registration struct{ done chan struct{} }

func (r registration) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	close(r.done)
	return &api.Empty{}, nil
}

func (registration) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("not configured yet")
}
