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

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// registrationTime limits the registration, which ends when the runtime has called Configure. It is longer than the timeout of
	// runtimes, which is 5 s by default and often set to 10 s.
	registrationTime = 15 * time.Second
)

// Run keeps the plugin registered until ctx ends. If the runtime is stopped or restarts, Run retries the registration
// with backoff.
func (p *Plugin) Run(ctx context.Context) error {
	defer p.reconciles.Wait()

	backoff := firstBackoff
	for ctx.Err() == nil {
		err := p.connect(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			backoff = firstBackoff
			p.options.Log.Warn("connection to the container runtime lost", "socket", p.options.Socket)
		} else {
			p.options.Log.Warn("not registered with the container runtime; retrying", "socket", p.options.Socket, "in", backoff, "error", err)
		}

		pause.For(ctx, backoff/2+rand.N(backoff/2))
		backoff = min(2*backoff, lastBackoff)
	}
	return nil
}

// connect opens a new connection, registers the plugin with a new stub, and serves until the connection or ctx ends. It
// returns an error if the runtime disconnects the plugin before the plugin is synchronized. After such an error Run
// does not reset its backoff, because each registration makes the runtime list all containers.
func (p *Plugin) connect(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to the runtime's NRI socket: %w", err)
	}
	s := newSession(p)
	conn.answered = s.unanswered.answered
	defer s.close(conn)

	if s.stub, err = s.newStub(conn); err != nil {
		return err
	}
	defer p.node.Disconnected()
	if err := s.register(ctx, conn); err != nil {
		return err
	}
	defer s.stub.Stop()

	p.options.Log.Info("registered with the container runtime", "nri", s.stub.RuntimeNRIVersion())
	s.serve(ctx, conn)
	select {
	case <-conn.ended:
		err := s.listing.failure(s.requestTimeout())
		p.node.UpdateRuntime(func(r *state.RuntimeInfo) { r.SyncFailure = err })
		return err
	default:
	}
	if ctx.Err() != nil {
		s.leave(conn)
	}
	return nil
}

// newStub returns a stub that calls the handlers of the session, and lets the session intercept the messages.
func (s *session) newStub(conn net.Conn) (stub.Stub, error) {
	return stub.New(s, stub.WithConnection(conn), stub.WithPluginName(Name), stub.WithPluginIdx(s.plugin.options.Index),
		stub.WithLogger(logger{s.plugin.options.Log}), stub.WithOnClose(func() {}),
		stub.WithTTRPCOptions([]ttrpc.ClientOpts{ttrpc.WithUnaryClientInterceptor(s.interceptRegistration)},
			[]ttrpc.ServerOpt{ttrpc.WithUnaryServerInterceptor(s.interceptRequest)}),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}))
}

// close closes the connection, which ends a pending call to the runtime. It then waits until this call has returned.
func (s *session) close(conn *watchedConn) {
	conn.close()
	_ = s.updating.Acquire(context.Background(), 1) // fails only if the context ends
	s.updating.Release(1)
}

// serve waits for the end of the connection, and starts a reconcile after each synchronization. It does not wait for
// the reconcile: the kernel may block the reconcile, and the plugin must still be able to register again.
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
			if s.events != s.subscription() {
				return
			}
		case <-s.synchronized:
			s.plugin.reconciles.Go(func() {
				s.plugin.node.Reconcile(ctx)
				debug.FreeOSMemory() // the synchronization message was many times larger than the state
			})
		}
	}
}

// register starts the stub. If the runtime dies between RegisterPlugin and Configure, stub.Start would block forever.
// In this case register calls the stub's Configure itself. This call fails, and its error ends stub.Start.
func (s *session) register(ctx context.Context, conn *watchedConn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registrationTime, errNotAnswered)
	defer cancel()

	// The stub uses the context of Start until the connection ends, so this context has no timeout.
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
	case err := <-started: // Start failed before it waited for Configure
		return explain(ctx, err)
	case <-s.registered:
	}
	if service, ok := s.stub.(api.PluginService); ok && !s.configured.Swap(true) {
		_, _ = service.Configure(context.WithoutCancel(ctx), &api.ConfigureRequest{}) // stub.Start returns the error of Configure
	}
	return explain(ctx, <-started)
}

// errNotAnswered means that the runtime has not registered and configured the plugin within registrationTime.
var errNotAnswered = fmt.Errorf("the runtime does not answer the registration within %s, and containers start without classes meanwhile; "+
	"reduce its load, and look for \"nri\" in its log", registrationTime)

// explain returns the reason why a registration ended: errNotAnswered if it took too long, otherwise the error of the
// stub.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, errNotAnswered) {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return err
}

// interceptRegistration is a ttrpc interceptor. After a successful RegisterPlugin, it closes s.registered. It replaces
// the stub's timeout, a constant of 5 s, by registrationTime. After this time, the method `register` closes the
// connection.
func (s *session) interceptRegistration(ctx context.Context, request *ttrpc.Request, response *ttrpc.Response, info *ttrpc.UnaryClientInfo,
	invoke ttrpc.Invoker,
) error {
	if path.Base(info.FullMethod) != "RegisterPlugin" {
		return invoke(ctx, request, response)
	}
	request.TimeoutNano = registrationTime.Nanoseconds()
	err := invoke(context.WithoutCancel(ctx), request, response)
	if err == nil {
		s.once.Do(func() { close(s.registered) })
	}
	return err
}

// watchedConn closes a channel when the connection ends, because a stub that is starting does not report this end. It
// calls `answered` after each answer to a call of the runtime.
type watchedConn struct {
	net.Conn
	once     sync.Once
	ended    chan struct{}
	answers  answerFinder // the stub calls Write under a lock
	answered func()
}

func (p *Plugin) dial(ctx context.Context) (*watchedConn, error) {
	conn, err := p.options.Dial(ctx, p.options.Socket)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, ended: make(chan struct{}), answered: func() {}}, nil
}

func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if c.answers.ends(b[:n]) {
		c.answered()
	}
	return n, err
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

// closeWrite ends this side of the connection. The runtime then ends the other side.
func (c *watchedConn) closeWrite() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		c.close()
	}
}

func (c *watchedConn) end()   { c.once.Do(func() { close(c.ended) }) }
func (c *watchedConn) close() { _ = c.Close() }
