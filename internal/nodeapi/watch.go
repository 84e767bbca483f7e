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
	// watchPause is the least time between two messages of a stream: what changes in it comes as one.
	watchPause = 50 * time.Millisecond
	// observePause is the same where nobody waits for an answer.
	observePause = time.Second
)

// watch sends the state now and after every change, when it differs from what was sent last. States between are
// skipped when the reader is slow: Send waits for it, and the state is looked at only then.
func watch[T proto.Message](ctx context.Context, s *service, look func() T, send func(T) error) error {
	var last T
	for first := true; ; first = false {
		changed := s.node.Changed() // before the look, so that no change is missed
		if state := look(); first || !proto.Equal(last, state) {
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

// wait returns after a pause, when a change has come. The error is that with which a stream ends.
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

// observe looks at the status at its changes, so that the transitions of conditions are dated also when nobody asks.
func (s *service) observe(ctx context.Context) {
	for {
		changed := s.node.Changed()
		s.status()
		if s.wait(ctx, changed, observePause) != nil {
			return
		}
	}
}
