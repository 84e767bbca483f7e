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
	// watchPause is the shortest time between two messages of a stream. All changes within this time are sent in one message.
	watchPause = 50 * time.Millisecond
	// observePause is the shortest time between two reads of the status by the method `observe`.
	observePause = time.Second
)

// watch sends the present state, and then a new state after every change, if the new state differs from the last one
// sent. A slow client skips states, because the next state is read only after the function `send` has waited for the
// client.
func watch[T proto.Message](ctx context.Context, s *service, get func() T, send func(T) error) error {
	var last T
	for first := true; ; first = false {
		changed := s.node.Changed() // obtained before the state is read, so that no change is missed
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

// wait returns nil when the pause is over and a change has occurred. If ctx ends or the server stops first, it returns
// the error with which the stream must end.
func (s *service) wait(ctx context.Context, changed <-chan struct{}, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()

	paused := timer.C
	for paused != nil || changed != nil {
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-s.stopping:
			return status.Error(codes.Unavailable, "qos-nri-plugin is stopping; connect again after its restart")
		case <-paused:
			paused = nil
		case <-changed:
			changed = nil
		}
	}
	return nil
}

// observe reads the status after each change, so that the transition times of conditions are correct even if no
// client reads the status.
func (s *service) observe(ctx context.Context) {
	for {
		changed := s.node.Changed()
		s.status()
		if s.wait(ctx, changed, observePause) != nil {
			return
		}
	}
}
