// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/containerd/nri/pkg/net/multiplex"
)

// unanswered counts the calls of the runtime that are under way. A call ends when its answer is written to the connection.
type unanswered struct {
	mu      sync.Mutex // guards the fields below
	calls   int
	closing bool
	// none is a channel that is closed when `closing` is true and no call is under way.
	none chan struct{}
}

// begin begins a call. After close, it waits until ctx ends, and returns the error of ctx.
func (u *unanswered) begin(ctx context.Context) error {
	u.mu.Lock()
	closing := u.closing
	if !closing {
		u.calls++
	}
	u.mu.Unlock()

	if closing {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// answered ends a call.
func (u *unanswered) answered() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == 0 {
		return // the answer to a request that ttrpc itself has refused
	}
	u.calls--
	if u.calls == 0 && u.closing {
		close(u.none)
	}
}

// close lets no more calls begin. The returned channel is closed when no call is under way.
func (u *unanswered) close() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closing, u.none = true, make(chan struct{})
	if u.calls == 0 {
		close(u.none)
	}
	return u.none
}

// answerFinder finds the ends of answers in the bytes that the stub writes to the runtime. NRI's multiplexer writes
// frames. The header of a frame has the ID of a virtual connection and the length of the payload. The header is
// written with one call of Write, and the payload with the next call. The payloads of the virtual connection for hooks
// contain messages of ttrpc. Each message has a header, which begins with the length of the message's data, and the
// data.
type answerFinder struct {
	// frame is the number of bytes of the current frame that are not written yet. `hooks` is true if the frame belongs
	// to the virtual connection for hooks.
	frame int
	hooks bool
	// message is the number of bytes of the current message that are not written yet.
	message int
}

const (
	frameHeader   = 8
	messageHeader = 10
)

// ends takes the bytes of one call of Write, and reports whether they complete an answer.
func (f *answerFinder) ends(written []byte) bool {
	if f.frame == 0 {
		if len(written) == frameHeader {
			f.hooks = binary.BigEndian.Uint32(written) == uint32(multiplex.PluginServiceConn)
			f.frame = int(binary.BigEndian.Uint32(written[4:]))
		}
		return false
	}

	f.frame = max(0, f.frame-len(written))
	if !f.hooks {
		return false
	}
	if f.message == 0 && len(written) >= messageHeader {
		f.message = messageHeader + int(binary.BigEndian.Uint32(written))
	}
	f.message = max(0, f.message-len(written))
	return f.message == 0
}
