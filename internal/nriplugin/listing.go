// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"fmt"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// listing records how much of the runtime's list of pods and containers the plugin has received. It is safe for
// concurrent use.
type listing struct {
	mu sync.Mutex
	// began is the time when the list's first message arrived. `complete` becomes true with the list's last message.
	began              time.Time
	pods, containers   int
	complete, accepted bool
}

// received counts the pods and containers in one message of the list, and records whether the message is the last one.
func (l *listing) received(m *api.SynchronizeRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.began.IsZero() {
		l.began = time.Now()
	}
	l.pods += len(m.GetPods())
	l.containers += len(m.GetContainers())
	l.complete = !m.GetMore()
}

// accept records that the plugin has processed the list before the runtime's timeout.
func (l *listing) accept() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.accepted = true
}

// failure returns why the runtime disconnected the plugin before the synchronization was complete, or nil if the
// synchronization was complete. The runtime sends the list of its pods and containers in parts. It disconnects a plugin
// that has not processed all parts within the timeout.
//
// The runtime does not report its reason, so failure infers it. If the plugin has the complete list, or if the timeout
// has passed since the first part, the plugin was too slow. Otherwise the next part was too large: a part has at least
// 8 pods and containers, and must fit into 4 MiB. In either case, the runtime may also have stopped.
func (l *listing) failure(timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch late := l.complete || !l.began.IsZero() && time.Since(l.began) >= timeout; {
	case l.accepted:
		return nil
	case late:
		return fmt.Errorf("the runtime disconnected the plugin before it was synchronized; "+
			"the runtime has stopped, or the synchronization took longer than the runtime's timeout of %s; "+
			"give the plugin more CPU, or raise plugin_request_timeout in the runtime's NRI configuration", timeout)
	}
	return fmt.Errorf("the runtime disconnected the plugin before it was synchronized, after listing %d pods and %d containers; "+
		"either the runtime has stopped or, more likely, the environment variables of a container are too large for a message of the runtime; "+
		"keep the environment variables of each container below 700 KiB in total", l.pods, l.containers)
}
