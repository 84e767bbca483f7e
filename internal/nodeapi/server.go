// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeapi serves the node API: gRPC on a unix socket.
package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// stopTime is how long requests may continue after the server was stopped. Streams end at once.
const stopTime = 2 * time.Second

// Options of a Server.
type Options struct {
	// Socket is the path of the unix socket. If the directory of this path does not exist, the server creates it.
	Socket string
	// Group is the name or number of a group whose members may use the API in addition to root. If it is empty, only
	// root may use the API.
	Group string
	// Version is the version of the program. The API returns it in Status.
	Version string
	Log     *slog.Logger
}

// Server serves the node API.
type Server struct {
	options Options
	service *service
	ready   chan struct{}
}

// New returns a server for a node. It does no I/O and starts nothing.
func New(n Node, o Options) *Server {
	return &Server{options: o, service: newService(n, o.Version), ready: make(chan struct{})}
}

// Ready returns a channel that is closed when the socket accepts connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends. It then ends all streams with UNAVAILABLE, and lets other requests continue for a short
// time. It must be called only once.
func (s *Server) Run(ctx context.Context) error {
	allowed, err := allowedPeers(s.options.Group)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, s.options.Socket, allowed, s.options.Log)
	if err != nil {
		return err
	}

	close(s.ready)
	return s.serve(ctx, listener, allowed)
}

func (s *Server) serve(ctx context.Context, listener net.Listener, allowed peers) error {
	server := grpc.NewServer(
		grpc.Creds(peerCredentials{insecure.NewCredentials()}),
		grpc.UnaryInterceptor(allowed.unary),
		grpc.StreamInterceptor(allowed.stream),
	)
	qosv1alpha1.RegisterNodeQOSServer(server, s.service)

	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	parts.Go(func() { s.service.observe(ctx) })
	parts.Go(func() { <-ctx.Done(); s.stop(server) })

	err := server.Serve(listener)
	cancel()
	parts.Wait()
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve the node API on %s: %w", s.options.Socket, err)
	}
	return nil
}

// stop ends streams at once. It ends other requests after stopTime.
func (s *Server) stop(server *grpc.Server) {
	close(s.service.stopping)
	timer := time.AfterFunc(stopTime, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
}
