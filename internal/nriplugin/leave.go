// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"errors"
	"time"
)

// leaveTime limits how long a session takes to leave the runtime.
const leaveTime = 3 * time.Second

// errLeaving is the error of a hook that cannot be completed because the session ends.
var errLeaving = errors.New("qos-nri-plugin is leaving the container runtime, because it is being stopped; " +
	"the kubelet creates the container again")

// leave ends a session. The session answers the hooks that are running, and refuses new containers that would get a class.
// leave closes the connection when no hook is running.
//
// NRI has no call with which a plugin leaves, so the runtime may call a hook while leave closes the connection. If this hook
// is part of the creation of a container, the creation fails, because the plugin validates containers and no longer answers.
func (s *session) leave(conn *watchedConn) {
	s.startLeaving(errLeaving)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()

	_ = s.update(ctx, nil) // returns when no hook is under way, because the runtime calls hooks and updates under one lock
	conn.closeWrite()
	select {
	case <-conn.ended:
	case <-ctx.Done():
	}
}
