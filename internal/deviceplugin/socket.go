// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

// socket is a unix socket whose file other processes may remove. It is safe for concurrent use.
type socket struct {
	mu       sync.Mutex // guards the fields below
	listener net.Listener
	path     string
	file     os.FileInfo // identifies the file of this socket, to distinguish it from another file with the same name
	removed  bool        // true after remove was called
}

// bind creates the socket if its file does not exist, and passes the listener to `serve`, which must not block. bind closes
// the previous listener, whose connections stay open.
func (s *socket) bind(ctx context.Context, path string, serve func(net.Listener)) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.removed || s.fileExists(path) {
		return nil
	}
	s.close()
	if err := removeStale(ctx, path); err != nil {
		return err
	}

	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // closing the listener would remove another socket with the same name

	err = os.Chmod(path, 0o600) // kubelet runs as root, so no other user needs access
	if err == nil {
		s.file, err = os.Lstat(path)
	}
	if err != nil {
		return errors.Join(err, listener.Close())
	}

	s.listener, s.path = listener, path
	serve(listener)
	return nil
}

func (s *socket) exists() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.fileExists(s.path)
}

// fileExists reports whether the socket is at the given path. The caller holds mu.
func (s *socket) fileExists(path string) bool {
	if s.listener == nil || s.path != path {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, s.file)
}

// remove closes the socket permanently. It removes the socket's file, unless another file has replaced it.
func (s *socket) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.removed = true
	if s.fileExists(s.path) {
		_ = os.Remove(s.path) // if this fails, the next start removes the file
	}
	s.close()
}

func (s *socket) close() {
	if s.listener != nil {
		_ = s.listener.Close() // an error is ignored, because the server may have closed the listener already
		s.listener = nil
	}
}

func removeStale(ctx context.Context, path string) error {
	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return fmt.Errorf("%s is not a socket; remove the file", path)
	case errors.Is(err, unixsocket.ErrServed):
		return fmt.Errorf("another process serves %s; check for a second qos-kubelet-shim on this node", path)
	}
	return err
}

// removeStaleSockets removes the sockets in `dir` that an earlier process has left behind. It ignores sockets that cannot
// be removed. If the publisher needs the path of such a socket, bind reports the failure.
func removeStaleSockets(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Type() == fs.ModeSocket && ourSocket.MatchString(entry.Name()) {
			_ = unixsocket.RemoveStale(ctx, filepath.Join(dir, entry.Name()))
		}
	}
	return err
}
