// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// registrationTime limits how long a cut connection stays open for the answer to a registration.
const registrationTime = time.Second

// cable is a socket that forwards to another socket. The method `cut` closes all its connections at once, as when a
// process is killed.
type cable struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex        // guards the fields below
	ends  map[net.Conn]bool // true for the plugin's ends
	isCut bool
}

// newCable listens at `from` until it is cut.
func newCable(from, to string) (*cable, error) {
	listener, err := net.Listen("unix", from)
	if err != nil {
		return nil, err
	}
	c := &cable{listener: listener, to: to, ends: map[net.Conn]bool{}}
	c.running.Go(c.serve)
	return c, nil
}

func (c *cable) serve() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return // it was cut
		}
		far, err := net.Dial("unix", c.to)
		if err != nil || !c.add(near, far) {
			_ = near.Close()
			continue
		}
		answered := make(chan struct{})
		c.running.Go(func() {
			c.carry(near, &noting{Conn: far, read: answered})
			_ = near.Close()
		})
		c.running.Go(func() {
			c.carry(far, near)
			// NRI's runtime side (0.12.5) has a data race if a connection ends during the registration. The
			// registration is the first request, so the connection stays open until the runtime has answered once.
			select {
			case <-answered:
			case <-time.After(registrationTime):
			}
			_ = far.Close()
		})
	}
}

func (c *cable) add(near, far net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = far.Close()
		return false
	}
	c.ends[near], c.ends[far] = true, false
	return true
}

// carry copies data until one of the two connections is closed.
func (c *cable) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ends, to)
}

// noting is a connection that reports its first Read by closing a channel.
type noting struct {
	net.Conn
	once sync.Once
	read chan struct{}
}

func (n *noting) Read(b []byte) (int, error) {
	count, err := n.Conn.Read(b)
	n.once.Do(func() { close(n.read) })
	return count, err
}

// cut closes the plugin's side of all connections. It does not wait for anything.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	_ = c.listener.Close()
	for end, plugins := range c.ends {
		if plugins {
			_ = end.Close()
		}
	}
}

// end cuts the cable and waits for its goroutines.
func (c *cable) end() error {
	c.cut()
	c.running.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ends) > 0 {
		return errors.New("connections are left")
	}
	return nil
}
