// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path"
	"runtime/debug"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// registrationTime bounds the time from connecting to being configured.
	registrationTime = 15 * time.Second
)

// Run keeps the plugin registered until ctx ends: when the runtime is away or restarts, it tries again with backoff.
func (p *Plugin) Run(ctx context.Context) error {
	defer p.converging.Wait()
	backoff := firstBackoff
	for ctx.Err() == nil {
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			backoff = firstBackoff
			p.options.Log.Warn("the connection to the container runtime is lost", "socket", p.options.Socket)
		} else {
			p.options.Log.Warn("not registered with the container runtime; trying again", "socket", p.options.Socket, "in", backoff, "error", err)
		}
		pause.For(ctx, backoff/2+rand.N(backoff/2))
		backoff = min(2*backoff, lastBackoff)
	}
	return nil
}

// errDropped is of a runtime to which it would be no use to come back at once: it would have to tell all that runs each time.
var errDropped = errors.New("the runtime has dropped the plugin before it was synchronized; a synchronization may take longer than the runtime waits")

// connect registers over a new connection, with a new stub, and serves until the connection or ctx ends. The error is nil if the plugin was
// registered and synchronized.
func (p *Plugin) connect(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to the runtime's NRI socket: %w", err)
	}
	defer conn.close()
	s := &session{plugin: p, synchronized: make(chan struct{}, 1), registered: make(chan struct{}), updating: make(chan struct{}, 1)}
	s.stub, err = stub.New(s, stub.WithConnection(conn), stub.WithPluginName(Name), stub.WithPluginIdx(p.options.Index),
		stub.WithLogger(logger{p.options.Log}), stub.WithOnClose(func() {}),
		stub.WithTTRPCOptions([]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(s.noteRegistration)}, nil),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
	if err != nil {
		return err
	}
	defer p.node.Disconnected()
	if err := s.register(ctx, conn); err != nil {
		return err
	}
	began := time.Now()
	defer s.stub.Stop()
	p.options.Log.Info("registered with the container runtime", "nri", s.stub.RuntimeNRIVersion())
	s.serve(ctx, conn)
	if !s.inTime.Load() && time.Since(began) < lastBackoff {
		return errDropped
	}
	return nil
}

// serve waits for the end of the connection, and after each synchronization brings what runs into its classes. It does not wait
// for the end of that: the kernel may hang in it, and the runtime must get its plugin back all the same.
func (s *session) serve(ctx context.Context, conn *watchedConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-conn.ended:
			return
		case <-s.plugin.refresh:
			if s.events != events(s.plugin.node.HasPodScope()) {
				return
			}
		case <-s.synchronized:
			s.plugin.converging.Go(func() {
				s.plugin.node.Reconcile(ctx)
				debug.FreeOSMemory() // a synchronization has all containers of the node in memory, many times what is kept
			})
		}
	}
}

// register starts the stub. A runtime that dies between taking the registration and configuring the plugin would block
// stub.Start for good, so in that case it is ended by configuring the plugin ourselves, with an error.
func (s *session) register(ctx context.Context, conn *watchedConn) error {
	ctx, cancel := context.WithTimeout(ctx, registrationTime)
	defer cancel()
	// The stub serves with the context that it is started with for as long as it is connected.
	started := make(chan error, 1)
	go func() { started <- s.stub.Start(context.WithoutCancel(ctx)) }()
	select {
	case err := <-started:
		return err
	case <-conn.ended:
	case <-ctx.Done():
	}
	conn.close()
	select {
	case err := <-started: // it never came to wait
		return err
	case <-s.registered:
	}
	if service, ok := s.stub.(api.PluginService); ok && !s.configured.Swap(true) {
		_, _ = service.Configure(context.WithoutCancel(ctx), &api.ConfigureRequest{}) // what fails here, Start returns
	}
	return <-started
}

// noteRegistration sees the stub's calls of the runtime.
func (s *session) noteRegistration(ctx context.Context, request *ttrpc.Request, response *ttrpc.Response, info *ttrpc.UnaryClientInfo,
	invoke ttrpc.Invoker,
) error {
	err := invoke(ctx, request, response)
	if err == nil && path.Base(info.FullMethod) == "RegisterPlugin" {
		s.once.Do(func() { close(s.registered) })
	}
	return err
}

// watchedConn tells when its connection has ended, which the stub does not while it starts.
type watchedConn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (p *Plugin) dial(ctx context.Context) (*watchedConn, error) {
	conn, err := p.options.Dial(ctx, p.options.Socket)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, ended: make(chan struct{})}, nil
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *watchedConn) end()   { c.once.Do(func() { close(c.ended) }) }
func (c *watchedConn) close() { _ = c.Close() }
