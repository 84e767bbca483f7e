// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodecache is a watch cache of the node API. It follows the plugin's streams and keeps the latest message of
// each stream.
package nodecache

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/nodeclient"
)

// State is the state of the plugin that the cache has received. Callers must not modify Status, Assignments and
// Latest, because all callers share these messages.
type State struct {
	// Status and Assignments are from the last time when the plugin was ready: connected, with a configuration applied,
	// and synchronized with the container runtime. Both are nil until the plugin is ready for the first time.
	Status      *qosv1alpha1.StatusResponse
	Assignments *qosv1alpha1.ListAssignmentsResponse
	// Latest is the newest status on the present connection, whether the plugin is ready or not. It is nil while there
	// is no connection.
	Latest *qosv1alpha1.StatusResponse
	// NotReadySince is the time when the plugin stopped being ready. It is zero while the plugin is ready.
	NotReadySince time.Time
	// Problem is a text for people that states why the plugin is not ready. It is empty while the plugin is ready.
	Problem string
}

// Ready reports whether Status and Assignments are current.
func (s State) Ready() bool { return s.NotReadySince.IsZero() }

// Cache keeps the latest state of the plugin. It is safe for concurrent use.
type Cache struct {
	socket string
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex // guards the fields below
	state   State
	changed chan struct{}
	// status and assignments are the latest messages on the present connection. Each is nil until its first message arrives.
	status      *qosv1alpha1.StatusResponse
	assignments *qosv1alpha1.ListAssignmentsResponse
}

// New returns a cache of the node API on the given socket. It does no I/O.
func New(socket string, log *slog.Logger) *Cache {
	return &Cache{
		socket: socket, log: log, now: time.Now, changed: make(chan struct{}),
		state: State{NotReadySince: time.Now(), Problem: "qos-nri-plugin has not answered yet"},
	}
}

// Get returns the state, and a channel that is closed when the state changes.
func (c *Cache) Get() (state State, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.state, c.changed
}

// Run follows the node API until ctx ends. It reconnects whenever the connection is lost.
func (c *Cache) Run(ctx context.Context) error {
	conn, err := nodeclient.Connect(c.socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()

	client := qosv1alpha1.NewNodeQOSClient(conn)
	backoff := newBackoff()
	for {
		err := c.watch(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		if c.disconnected(err) {
			backoff = newBackoff()
		}

		// gRPC's own backoff is designed for networks, and is too slow for a local socket.
		conn.ResetConnectBackoff()
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 5 * time.Second}
}

func (c *Cache) watch(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		stream, err := client.Watch(ctx, &qosv1alpha1.WatchRequest{})
		return receive(stream, err, func(r *qosv1alpha1.WatchResponse) { c.update(r.GetStatus(), nil) })
	})
	group.Go(func() error {
		stream, err := client.WatchAssignments(ctx, &qosv1alpha1.WatchAssignmentsRequest{})
		return receive(stream, err, func(r *qosv1alpha1.WatchAssignmentsResponse) { c.update(nil, r.GetAssignments()) })
	})
	return group.Wait()
}

func receive[T any](stream grpc.ServerStreamingClient[T], err error, handle func(*T)) error {
	for err == nil {
		var message *T
		if message, err = stream.Recv(); err == nil {
			handle(message)
		}
	}
	return err
}

func (c *Cache) update(s *qosv1alpha1.StatusResponse, a *qosv1alpha1.ListAssignmentsResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if s != nil {
		c.status = s
	}
	if a != nil {
		c.assignments = a
	}

	if problem := c.problem(); problem != "" {
		c.notReady(problem)
	} else {
		c.set(State{Status: c.status, Assignments: c.assignments, Latest: c.status})
	}
}

// disconnected handles the end of a connection with the error `err`. It reports whether the connection had delivered a
// status. The cache's state keeps the Status and Assignments from the last time that the plugin was ready.
func (c *Cache) disconnected(err error) (received bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	received = c.status != nil
	c.status, c.assignments = nil, nil
	c.notReady(c.describe(err))
	return received
}

// problem returns why the plugin is not ready. It returns an empty string if the plugin is ready. The caller holds mu.
func (c *Cache) problem() string {
	config := c.status.GetConfig()
	switch {
	case c.status == nil || c.assignments == nil:
		return "qos-nri-plugin has not reported its state yet"
	case config.GetGeneration() == 0 && config.GetLastError() != "":
		return "qos-nri-plugin has no class files in force: " + config.GetLastError()
	case config.GetGeneration() == 0:
		return "qos-nri-plugin has no class files in force"
	case !c.status.GetRuntime().GetRegistered() || !c.assignments.GetSynchronized():
		return "qos-nri-plugin is not registered with the container runtime"
	}
	return ""
}

func (c *Cache) describe(err error) string {
	failure := status.Convert(err)
	remedy := "check that it runs with the same --api-socket"
	if failure.Code() == codes.PermissionDenied || strings.Contains(failure.Message(), "permission denied") {
		remedy = "run qos-kubelet-shim as root, or in the group of qos-nri-plugin's --api-socket-group or --api-read-socket-group"
	}
	return fmt.Sprintf("qos-nri-plugin does not answer on %s: %s; %s", c.socket, failure.Message(), remedy)
}

func (c *Cache) notReady(problem string) {
	next := c.state
	next.Latest, next.Problem = c.status, problem
	if next.Ready() {
		next.NotReadySince = c.now()
	}
	c.set(next)
}

// set replaces the state. It logs when the plugin becomes ready, and when the problem changes. The caller holds mu.
func (c *Cache) set(next State) {
	switch {
	case next.Problem == c.state.Problem:
	case next.Ready():
		c.log.Info("qos-nri-plugin is ready", "version", next.Status.GetPlugin().GetVersion())
	default:
		c.log.Warn("qos-nri-plugin is not ready; published data is kept for now", "problem", next.Problem)
	}

	c.state = next
	close(c.changed)
	c.changed = make(chan struct{})
}
