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

// socket is a unix socket whose file others may remove. It is safe for concurrent use.
type socket struct {
	mu       sync.Mutex // guards all below
	listener net.Listener
	path     string
	file     os.FileInfo // distinguishes our file from another one with the same name
	removed  bool        // remove was called
}

// bind makes the socket if its file does not exist, and passes the listener to serve, which must not block. It closes the
// previous listener; its connections stay.
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

	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	if unixListener, ok := listener.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // it would remove another socket with the same name
	}
	err = os.Chmod(path, 0o600) // kubelet is root
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

// fileExists reports whether the socket is at path. The caller holds mu.
func (s *socket) fileExists(path string) bool {
	if s.listener == nil || s.path != path {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, s.file)
}

// remove closes the socket for good, and removes its file unless it has been replaced.
func (s *socket) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.removed = true
	if s.fileExists(s.path) {
		_ = os.Remove(s.path) // the next start removes it as well
	}
	s.close()
}

func (s *socket) close() {
	if s.listener != nil {
		_ = s.listener.Close() // the server may have closed it
		s.listener = nil
	}
}

func removeStale(ctx context.Context, path string) error {
	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return fmt.Errorf("%s is not a socket; remove it", path)
	case errors.Is(err, unixsocket.ErrServed):
		return fmt.Errorf("another process serves %s; is there a second qos-kubelet-shim on this node?", path)
	}
	return err
}

// removeStaleSockets removes the sockets in dir that a previous process has left behind. Failures are ignored here: bind
// reports those that matter.
func removeStaleSockets(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Type() == fs.ModeSocket && ourSocket.MatchString(entry.Name()) {
			_ = unixsocket.RemoveStale(ctx, filepath.Join(dir, entry.Name()))
		}
	}
	return err
}
