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

// maxSocketPath is the longest path of a unix socket, in bytes (unix(7), sun_path without its terminator).
const maxSocketPath = 107

// errInUse means that another process serves the socket.
var errInUse = errors.New("another process serves it")

// listen makes the socket, and replaces one that no process serves. Closing the listener removes the file.
func listen(ctx context.Context, path string, allowed peers, log *slog.Logger) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("serve the node API on %s: the path has %d bytes, and the kernel takes %d; choose a shorter --api-socket",
			path, len(path), maxSocketPath)
	}

	listener, err := bind(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("serve the node API on %s: %w", path, err)
	}
	if err := permit(path, allowed, log); err != nil {
		return nil, errors.Join(fmt.Errorf("serve the node API on %s: %w", path, err), listener.Close())
	}
	return listener, nil
}

// bind makes the socket, and its directory when that is missing.
func bind(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}

	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return nil, errors.New("there is something else than a socket; remove it, or choose another --api-socket")
	case errors.Is(err, unixsocket.ErrServed):
		return nil, fmt.Errorf("%w; stop that one, or choose another --api-socket", errInUse)
	case err != nil:
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", path)
}

// permit lets the owner, and the group if there is one, open the socket. Until then only the check of peers refuses others.
func permit(path string, allowed peers, log *slog.Logger) error {
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
	return permitDirectory(filepath.Dir(path), gid, log)
}

// permitDirectory lets the group enter the directory of the socket. It changes the group of a directory that belongs to the
// plugin and is closed to others. Other directories are left to the administrator.
func permitDirectory(dir string, gid int, log *slog.Logger) error {
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
