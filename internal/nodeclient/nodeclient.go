// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeclient connects clients to the node API.
package nodeclient

import (
	"fmt"

	"google.golang.org/grpc"

	"github.com/qos-nri/qos-nri-plugin/internal/unixsocket"
)

// maxMessageSize is the largest response that a client accepts, in bytes: room for thousands of pods.
const maxMessageSize = 64 << 20

// Connect returns a connection to the node API on a unix socket. The connection is made at the first request. The
// caller must close the connection.
func Connect(socket string) (*grpc.ClientConn, error) {
	conn, err := unixsocket.Dial(socket, maxMessageSize)
	if err != nil {
		return nil, fmt.Errorf("connect to the node API on %s: %w", socket, err)
	}
	return conn, nil
}
