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

// socket is a unix socket of which others may remove the file. It is safe for concurrent use.
type socket struct {
	mu       sync.Mutex // guards all below
	listener net.Listener
	path     string
	file     os.FileInfo // what we made; another one under the same name is not ours
	removed  bool        // for ever
}

// bind makes the socket if its file is not there, and has serve take it, which does not wait. The previous one is
// closed; connections that came in by it stay.
func (s *socket) bind(ctx context.Context, path string, serve func(net.Listener)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed || s.present(path) {
		return nil
	}
	s.close()
	if err := clearPath(ctx, path); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	if unixListener, ok := listener.(*net.UnixListener); ok {
		unixListener.SetUnlinkOnClose(false) // by its name, which may be another socket's by then
	}
	// Kubelet is root, and nobody else has business here.
	err = os.Chmod(path, 0o600)
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

// there is whether the socket's file is.
func (s *socket) there() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present(s.path)
}

// present is whether the socket is at path. The caller holds mu.
func (s *socket) present(path string) bool {
	if s.listener == nil || s.path != path {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && os.SameFile(info, s.file)
}

// remove closes the socket for good, and removes its file if that is still ours.
func (s *socket) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = true
	if s.present(s.path) {
		_ = os.Remove(s.path) // gone, or left for the next start
	}
	s.close()
}

func (s *socket) close() {
	if s.listener != nil {
		_ = s.listener.Close() // the server may have closed it
		s.listener = nil
	}
}

// clearPath makes room for a socket, and says what to do when it cannot.
func clearPath(ctx context.Context, path string) error {
	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return fmt.Errorf("%s is in the way and not a socket; remove it", path)
	case errors.Is(err, unixsocket.ErrServed):
		return fmt.Errorf("another process serves %s; is there a second qos-kubelet-shim on this node?", path)
	}
	return err
}

// sweep removes the sockets that a predecessor has left in dir, and nothing else. What it cannot remove matters when
// its class is published, and is told then.
func sweep(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSocket || !ourSocket.MatchString(entry.Name()) {
			continue
		}
		_ = unixsocket.RemoveStale(ctx, filepath.Join(dir, entry.Name()))
	}
	return nil
}
