// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unixsocket clears the paths of unix sockets that processes have left behind.
package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotSocket says that something else than a socket is at the path.
	ErrNotSocket = errors.New("not a socket")
	// ErrServed says that a process serves the socket.
	ErrServed = errors.New("served by another process")
)

// RemoveStale removes the socket of a process that ended without doing so itself. Nothing at the path is no error; what
// is no socket (ErrNotSocket) or is served (ErrServed) stays.
func RemoveStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return ErrNotSocket
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(ErrServed, conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else was faster
	}
	return err
}
