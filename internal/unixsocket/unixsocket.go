// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unixsocket connects gRPC clients to unix sockets, and removes sockets that ended processes have left behind.
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
	// ErrServed means that a process serves the socket.
	ErrServed = errors.New("served by another process")
)

// Dial returns a connection to a socket. It connects at the first request, and accepts responses of at most maxResponse bytes.
// The caller closes the connection.
func Dial(path string, maxResponse int) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///localhost",
		// A unix: address is a URL, and not every path can be written as one.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		// The kernel decides which processes may connect. No other process can read or change messages.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
	)
}

// RemoveStale removes a socket that no process serves. A missing socket is no error; ErrNotSocket and ErrServed leave the path
// as it is.
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
		return nil // removed by another process
	}
	return err
}
