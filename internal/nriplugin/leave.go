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
var errLeaving = errors.New("qos-nri-plugin is being stopped, so it disconnects from the container runtime; " +
	"the kubelet tries again to create the container")

// leave ends a session. It answers the running hooks, refuses new containers that would get a class, and closes the
// connection when no hook is running.
//
// NRI has no call with which a plugin unregisters, so the runtime may call a hook while the plugin closes the
// connection. The plugin does not answer this hook. If the hook belongs to the creation of a container, the creation
// fails, because NRI refuses a container if a plugin that validates containers does not answer.
func (s *session) leave(conn *watchedConn) {
	s.startLeaving(errLeaving)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()

	select {
	case <-s.unanswered.close():
	case <-ctx.Done():
	}
	conn.closeWrite()
	select {
	case <-conn.ended:
	case <-ctx.Done():
	}
}
