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
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// stopTime is how long unary requests may continue after the server was stopped. Streams end at once.
const stopTime = 2 * time.Second

// These constants limit the memory and the CPU time that the plugin spends on clients of the read-only socket. They are enough
// for a publisher, which has one connection with two streams.
const (
	maxReadConnections    = 4
	maxReadStreams        = 4       // per connection
	maxReadRequest        = 4 << 10 // bytes
	readRequestsPerSecond = 10      // on all connections together, except ReportEnforcement; a stream counts once, when it begins
	readRequestBurst      = 20
	reportsPerSecond      = 20 // requests of ReportEnforcement by one user
	reportBurst           = 200
)

// Options has the settings of a Server.
type Options struct {
	// Socket is the path of the unix socket. If the directory of this path does not exist, the server creates it.
	Socket string
	// Group is the name or number of a group whose members may use the API in addition to root. If it is empty, only
	// root may use the API.
	Group string
	// ReadSocket is the path of a second unix socket, on which no request can change a class. If it is empty, the server
	// does not create it. ReadGroup is the group whose members may use ReadSocket.
	ReadSocket, ReadGroup string
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
// time. Run must be called only once.
func (s *Server) Run(ctx context.Context) error {
	endpoints, err := s.open(ctx)
	if err != nil {
		return err
	}

	close(s.ready)
	return s.serve(ctx, endpoints)
}

type endpoint struct {
	listener net.Listener
	server   *grpc.Server
}

// open creates all sockets or none.
func (s *Server) open(ctx context.Context) ([]endpoint, error) {
	all, err := s.endpoint(ctx, s.options.Socket, s.options.Group, &qosv1alpha1.NodeQOS_ServiceDesc)
	if err != nil || s.options.ReadSocket == "" {
		return []endpoint{all}, err
	}

	read, err := s.endpoint(ctx, s.options.ReadSocket, s.options.ReadGroup, readOnly(),
		grpc.UnknownServiceHandler(refuseChange), grpc.MaxConcurrentStreams(maxReadStreams), grpc.MaxRecvMsgSize(maxReadRequest),
		grpc.InTapHandle(newReadLimits().allow))
	if err != nil {
		return nil, errors.Join(err, all.listener.Close())
	}
	read.listener = limited{Listener: read.listener, open: make(chan struct{}, maxReadConnections)}
	return []endpoint{all, read}, nil
}

// endpoint creates a unix socket, and a gRPC server that serves the given API.
func (s *Server) endpoint(
	ctx context.Context, socket, group string, api *grpc.ServiceDesc, options ...grpc.ServerOption,
) (endpoint, error) {
	allowed, err := allowedPeers(group)
	if err != nil {
		return endpoint{}, err
	}
	listener, err := listen(ctx, socket, allowed, s.options.Log)
	if err != nil {
		return endpoint{}, err
	}

	server := grpc.NewServer(append(options,
		grpc.Creds(peerCredentials{insecure.NewCredentials()}),
		grpc.UnaryInterceptor(allowed.unary),
		grpc.StreamInterceptor(allowed.stream),
	)...)
	server.RegisterService(api, s.service)
	return endpoint{listener: listener, server: server}, nil
}

// readOnly describes the requests of the API that change no class. It lists them by name, so that a new request of the
// API stays off the read-only socket until its name is added here.
func readOnly() *grpc.ServiceDesc {
	reads := []string{"Status", "Watch", "ListAssignments", "WatchAssignments", "WatchUsage", "Blame", "Recommend", "ReportEnforcement"}
	api := qosv1alpha1.NodeQOS_ServiceDesc
	api.Methods = slices.DeleteFunc(slices.Clone(api.Methods), func(m grpc.MethodDesc) bool { return !slices.Contains(reads, m.MethodName) })
	api.Streams = slices.DeleteFunc(slices.Clone(api.Streams), func(s grpc.StreamDesc) bool { return !slices.Contains(reads, s.StreamName) })
	return &api
}

func refuseChange(any, grpc.ServerStream) error {
	return status.Error(codes.PermissionDenied,
		"this socket of the node API is read-only; to change classes, use the socket that --api-socket of qos-nri-plugin names")
}

func (s *Server) serve(ctx context.Context, endpoints []endpoint) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { s.service.observe(ctx); return nil })
	group.Go(func() error { <-ctx.Done(); s.stop(endpoints); return nil })
	for _, e := range endpoints {
		group.Go(func() error {
			if err := e.server.Serve(e.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serve the node API on %s: %w", e.listener.Addr(), err)
			}
			return nil
		})
	}
	return group.Wait()
}

// stop ends streams at once. It ends other requests after stopTime.
func (s *Server) stop(endpoints []endpoint) {
	close(s.service.stopping)

	var stopping sync.WaitGroup
	for _, e := range endpoints {
		stopping.Go(func() {
			timer := time.AfterFunc(stopTime, e.server.Stop)
			defer timer.Stop()
			e.server.GracefulStop()
		})
	}
	stopping.Wait()
}
