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
	"sync"
	"syscall"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

// maxSocketPath is the longest path of a unix socket, in bytes (unix(7), sun_path without its terminator).
const maxSocketPath = 107

var errInUse = errors.New("another process already serves this socket")

// listen creates the socket. If the path is a socket that no process serves, it replaces this socket. Closing the
// listener removes the socket's file.
func listen(ctx context.Context, path string, allowed peers, log *slog.Logger) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("serve the node API on %s: the path has %d bytes, and the kernel accepts %d; choose a shorter path",
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

// bind creates the socket. It creates the socket's directory too if the directory does not exist.
func bind(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}

	err := unixsocket.RemoveStale(ctx, path)
	switch {
	case errors.Is(err, unixsocket.ErrNotSocket):
		return nil, errors.New("the path exists and is not a socket; remove the file, or choose another path")
	case errors.Is(err, unixsocket.ErrServed):
		return nil, fmt.Errorf("%w; stop that process, or choose another path", errInUse)
	case err != nil:
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "unix", path)
}

// permit lets the owner of the socket and, if configured, the group connect to the socket. Until permit has returned,
// other processes may also be able to connect. peers.check then refuses their requests.
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

// permitDirectory lets the group `gid` enter the directory of the socket. It changes the group of the directory to `gid`
// only if the directory belongs to the plugin's user and has g+x but not o+x. If the group still cannot enter the
// directory, permitDirectory logs a warning with the remedy.
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

	log.Warn("the group of the node API cannot enter the directory of the socket; give the group access with chgrp and chmod g+x",
		"directory", dir, "gid", gid)
	return nil
}

// limited is a listener of a unix socket. If cap(open) connections are open, it closes each new connection at once.
type limited struct {
	net.Listener
	open chan struct{} // has an element for each open connection
}

func (l limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		unix, ok := conn.(*net.UnixConn)
		if !ok {
			return nil, errors.Join(errors.New("not a unix socket"), conn.Close())
		}

		select {
		case l.open <- struct{}{}:
			return &limitedConn{UnixConn: unix, release: sync.OnceFunc(func() { <-l.open })}, nil
		default:
			_ = conn.Close()
		}
	}
}

type limitedConn struct {
	*net.UnixConn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.UnixConn.Close()
}
