// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// watchPause is the shortest time between two messages of a stream. Changes within it are sent as one.
	watchPause = 50 * time.Millisecond
	// observePause is the shortest time between two observations of the status that no client has requested.
	observePause = time.Second
)

// watch sends the state now, and after every change that makes it differ from what was sent last. A slow reader misses states in
// between: Send waits for the reader, and the state is read after that.
func watch[T proto.Message](ctx context.Context, s *service, get func() T, send func(T) error) error {
	var last T
	for first := true; ; first = false {
		changed := s.node.Changed() // before the state is read, so that no change is missed
		if state := get(); first || !proto.Equal(last, state) {
			if err := send(state); err != nil {
				return err
			}
			last = state
		}
		if err := s.wait(ctx, changed, watchPause); err != nil {
			return err
		}
	}
}

// wait returns after both the pause and a change. The error is that with which the stream ends.
func (s *service) wait(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()

	paused := timer.C
	for paused != nil || changed != nil {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "qos-nri-plugin ends; connect again when it is back")
		case <-paused:
			paused = nil
		case <-changed:
			changed = nil
		}
	}
	return nil
}

// observe reads the status after its changes, so that transitions of conditions are dated without a client.
func (s *service) observe(ctx context.Context) {
	for {
		changed := s.node.Changed()
		s.status()
		if s.wait(ctx, changed, observePause) != nil {
			return
		}
	}
}
