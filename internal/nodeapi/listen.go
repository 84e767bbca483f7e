// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

// maxSocketPath is the longest path of a unix socket, in bytes (unix(7), sun_path without its end).
const maxSocketPath = 107

// ErrInUse says that another process serves the socket.
var ErrInUse = errors.New("another process serves it")

// listen makes the socket. The file of a process that is gone is replaced. Closing the listener removes the file.
func listen(ctx context.Context, path string, allowed peers, log *slog.Logger) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("serve the node API on %s: the path has %d bytes, and the kernel takes %d; choose a shorter --api-socket",
			path, len(path), maxSocketPath)
	}
	listener, err := listenAnew(ctx, path)
	if err == nil {
		err = share(path, allowed, log)
	}
	if err == nil {
		return listener, nil
	}
	if listener != nil {
		err = errors.Join(err, listener.Close())
	}
	return nil, fmt.Errorf("serve the node API on %s: %w", path, err)
}

func listenAnew(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	if err := clearPath(ctx, path); err != nil {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", path)
}

// clearPath makes room for the socket, and says what to do when it cannot.
func clearPath(ctx context.Context, path string) error {
	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return errors.New("there is something else than a socket; remove it, or choose another --api-socket")
	case errors.Is(err, unixsocket.ErrServed):
		return fmt.Errorf("%w; stop that one, or choose another --api-socket", ErrInUse)
	}
	return err
}

// share sets who can open the socket: its owner, and the group if there is one. Between its creation and this call the
// peer check alone keeps others out.
func share(path string, allowed peers, log *slog.Logger) error {
	if !allowed.hasGroup {
		return os.Chmod(path, 0o600)
	}
	gid := int(allowed.gid)
	if err := os.Chown(path, -1, gid); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return err
	}
	return openDirectory(filepath.Dir(path), gid, log)
}

// openDirectory lets the group enter the directory of the socket. A directory of our own that is closed to others is
// given to the group; any other is its administrator's business.
func openDirectory(dir string, gid int, log *slog.Logger) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case !ok || mode&0o001 != 0 || mode&0o010 != 0 && int(stat.Gid) == gid:
		return nil
	case mode&0o010 != 0 && int(stat.Uid) == os.Geteuid():
		return os.Chown(dir, -1, gid)
	}
	log.Warn("the group of the node API cannot enter the directory of its socket; allow it with chgrp and chmod g+x",
		"directory", dir, "gid", gid)
	return nil
}
