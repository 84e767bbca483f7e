// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxMessageSize is the largest answer that a client takes, in bytes: room for thousands of pods.
const maxMessageSize = 64 << 20

// Connect makes a connection to the node API on a unix socket. Nothing is sent before the first request. The caller
// closes it.
func Connect(socket string) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	conn, err := grpc.NewClient("passthrough:///localhost",
		// Not by a unix: address, which is a URL, and not every path is one.
		grpc.WithContextDialer(dial),
		// Who may connect is the kernel's to say; there is nothing on the way that could read or change what is sent.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the node API on %s: %w", socket, err)
	}
	return conn, nil
}
