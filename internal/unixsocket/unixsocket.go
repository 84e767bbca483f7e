// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unixsocket connects gRPC clients to unix sockets, and removes stale sockets, whose process has ended.
package unixsocket

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var (
	// ErrNotSocket means that the path is not a socket.
	ErrNotSocket = errors.New("not a socket")
	// ErrServed means that another process serves the socket.
	ErrServed = errors.New("served by another process")
)

// Dial returns a gRPC connection to a unix socket. The connection is made at the first request. A response may have
// at most maxResponse bytes. The caller must close the connection.
func Dial(path string, maxResponse int) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost",
		// The dialer has the path, because a gRPC address with "unix:" is a URL, and not every path can be written as a URL.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		// Messages need no encryption: the kernel decides which processes may connect, and no other process can read or
		// change the messages.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
	)
}

// Served reports whether a process serves a socket. It is false for a stale socket, and for a path that does not exist.
func Served(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// RemoveStale removes a socket that no process serves. It returns no error if the path does not exist. If it returns
// ErrNotSocket or ErrServed, it has not removed anything.
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
		return nil // another process has removed the socket
	}
	return err
}
