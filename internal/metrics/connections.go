// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

const (
	// maxConnections is the maximum number of open connections.
	maxConnections = 32
	// socketBuffer is the size, in bytes, of each connection's receive buffer and send buffer. Without this limit, the
	// kernel would enlarge the buffers to several MiB, and would count them as memory of this process's cgroup.
	socketBuffer = 32 << 10
)

// connections limits the open connections of a server. If there are too many, the server closes the oldest connection
// of the client with the most connections. The server accepts every connection, because a listener that stops accepting
// connections would also refuse the kubelet's probes.
type connections struct {
	mu sync.Mutex
	// open lists the open connections, the oldest first.
	open []net.Conn
}

func (c *connections) track(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		limitBuffers(conn)
		if surplus := c.add(conn); surplus != nil {
			abort(surplus)
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(conn)
	case http.StateActive, http.StateIdle:
	}
}

// add adds a connection. If more than maxConnections connections are then open, it removes one of them from the list
// and returns it as `surplus`. The caller must close the surplus connection.
func (c *connections) add(conn net.Conn) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.open = append(c.open, conn)
	if len(c.open) <= maxConnections {
		return nil
	}

	count := map[string]int{}
	for _, each := range c.open {
		count[client(each)]++
	}
	for _, each := range c.open {
		if surplus == nil || count[client(each)] > count[client(surplus)] {
			surplus = each
		}
	}
	c.open = slices.DeleteFunc(c.open, func(each net.Conn) bool { return each == surplus })
	return surplus
}

func (c *connections) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(each net.Conn) bool { return each == conn })
}

// client returns the address of a connection's client, without the port.
func client(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

func limitBuffers(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(socketBuffer) // fails only if the connection has ended
		_ = tcp.SetWriteBuffer(socketBuffer)
	}
}

// abort closes a connection and discards the data that the client has not read. After a normal close, the kernel would
// keep this data for minutes.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
