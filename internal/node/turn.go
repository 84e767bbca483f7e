// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import "context"

// turn is what one at a time can have. Unlike a mutex, who waits for it gives up with a context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for the turn. The error is that of ctx.
func (t turn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) leave() { <-t }
