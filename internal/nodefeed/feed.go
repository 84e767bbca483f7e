// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodefeed follows the node API and has the latest that the plugin told, for parts that publish it.
package nodefeed

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
	"github.com/qos-nri/qos-nri-plugin/internal/nodeapi"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// State is what the plugin told. Its messages are shared: nobody changes them.
type State struct {
	// Status and Assignments are those of the last time that the plugin was ready: it answered, had a configuration in force
	// and was synchronized with the runtime. Both are nil until it was so once.
	Status      *qosv1alpha1.StatusResponse
	Assignments *qosv1alpha1.ListAssignmentsResponse
	// Latest is what the plugin tells now, ready or not; nil while it does not answer.
	Latest *qosv1alpha1.StatusResponse
	// AwaySince is when the plugin stopped to be ready; zero while it is ready.
	AwaySince time.Time
	// Problem says for people why the plugin is not ready; empty while it is.
	Problem string
}

// Ready says whether Status and Assignments are of now.
func (s State) Ready() bool { return s.AwaySince.IsZero() }

// Feed has the latest state. It is safe for concurrent use.
type Feed struct {
	socket string
	log    *slog.Logger
	now    func() time.Time

	mu      sync.Mutex // guards all below
	state   State
	changed chan struct{}
	// status and assignments are of the present connection; nil before their first message.
	status      *qosv1alpha1.StatusResponse
	assignments *qosv1alpha1.ListAssignmentsResponse
}

// New makes a feed from the node API's socket. It does no I/O.
func New(socket string, log *slog.Logger) *Feed {
	return &Feed{
		socket: socket, log: log, now: time.Now, changed: make(chan struct{}),
		state: State{AwaySince: time.Now(), Problem: "qos-nri-plugin has not answered yet"},
	}
}

// Get returns the state, and a channel that is closed when there is another.
func (f *Feed) Get() (state State, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.changed
}

// Run follows the node API until ctx ends, and connects again whenever it is lost.
func (f *Feed) Run(ctx context.Context) error {
	conn, err := nodeapi.Connect(f.socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := qosv1alpha1.NewNodeQOSClient(conn)
	backoff := newBackoff()
	for ctx.Err() == nil {
		err := f.follow(ctx, client)
		if ctx.Err() != nil {
			break
		}
		if f.lost(err) {
			backoff = newBackoff()
		}
		// The connection has a backoff of its own, which is meant for networks.
		conn.ResetConnectBackoff()
		pause.For(ctx, backoff.Step())
	}
	return nil
}

// newBackoff is that of a socket on the same machine.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 8, Cap: 5 * time.Second}
}

// follow reads both streams until one of them ends.
func (f *Feed) follow(ctx context.Context, client qosv1alpha1.NodeQOSClient) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		stream, err := client.Watch(ctx, &qosv1alpha1.WatchRequest{})
		return receive(stream, err, func(r *qosv1alpha1.WatchResponse) { f.told(r.GetStatus(), nil) })
	})
	group.Go(func() error {
		stream, err := client.WatchAssignments(ctx, &qosv1alpha1.WatchAssignmentsRequest{})
		return receive(stream, err, func(r *qosv1alpha1.WatchAssignmentsResponse) { f.told(nil, r.GetAssignments()) })
	})
	return group.Wait()
}

func receive[T any](stream grpc.ServerStreamingClient[T], err error, tell func(*T)) error {
	for err == nil {
		var message *T
		if message, err = stream.Recv(); err == nil {
			tell(message)
		}
	}
	return err
}

// told takes what one of the streams has sent; the other is nil.
func (f *Feed) told(s *qosv1alpha1.StatusResponse, a *qosv1alpha1.ListAssignmentsResponse) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s != nil {
		f.status = s
	}
	if a != nil {
		f.assignments = a
	}
	next := f.state
	next.Latest = f.status
	if problem := f.problem(); problem != "" {
		f.away(&next, problem)
	} else {
		next = State{Status: f.status, Assignments: f.assignments, Latest: f.status}
	}
	f.set(next)
}

// problem says why the plugin is not ready, as far as the streams tell. The caller holds mu.
func (f *Feed) problem() string {
	switch {
	case f.status == nil || f.assignments == nil:
		return "qos-nri-plugin has not told its state yet"
	case f.status.GetConfig().GetGeneration() == 0:
		return "qos-nri-plugin has no class files in force" + because(f.status.GetConfig().GetLastError())
	case !f.status.GetRuntime().GetRegistered() || !f.assignments.GetSynchronized():
		return "qos-nri-plugin is not registered with the container runtime"
	}
	return ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// lost takes the end of the streams, and says whether they had told anything.
func (f *Feed) lost(err error) (told bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told = f.status != nil
	f.status, f.assignments = nil, nil
	next := f.state
	next.Latest = nil
	f.away(&next, f.describe(err))
	f.set(next)
	return told
}

// describe says what to do about a connection that failed.
func (f *Feed) describe(err error) string {
	said := status.Convert(err)
	remedy := "does it run, with the same --api-socket?"
	if said.Code() == codes.PermissionDenied || strings.Contains(said.Message(), "permission denied") {
		remedy = "run as root, or in the group that its --api-socket-group names"
	}
	return fmt.Sprintf("qos-nri-plugin does not answer on %s: %s; %s", f.socket, said.Message(), remedy)
}

func (f *Feed) away(next *State, problem string) {
	next.Problem = problem
	if next.AwaySince.IsZero() {
		next.AwaySince = f.now()
	}
}

// set makes the state that of now, and says in the log when the plugin comes and goes. The caller holds mu.
func (f *Feed) set(next State) {
	switch {
	case next.Problem == f.state.Problem:
	case next.Ready():
		f.log.Info("qos-nri-plugin is ready", "version", next.Status.GetPlugin().GetVersion())
	default:
		f.log.Warn("qos-nri-plugin is not ready; what is published stays as it is for now", "problem", next.Problem)
	}
	f.state = next
	close(f.changed)
	f.changed = make(chan struct{})
}
