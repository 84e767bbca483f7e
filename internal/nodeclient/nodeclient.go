// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclient connects clients to the node API.
package nodeclient

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxMessageSize is the largest response that a client accepts, in bytes: room for thousands of pods.
const maxMessageSize = 64 << 20

// Connect returns a connection to the node API on a unix socket. It sends nothing before the first request. The caller
// closes the connection.
func Connect(socket string) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	conn, err := grpc.NewClient("passthrough:///localhost",
		// A unix: address is a URL, and not every path can be written as one.
		grpc.WithContextDialer(dial),
		// The kernel decides which processes may connect; nothing in between can read or change messages.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the node API on %s: %w", socket, err)
	}
	return conn, nil
}
