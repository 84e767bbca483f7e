// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package simulated

import (
	"errors"
	"io"
	"net"
	"sync"
)

// cable is a socket that forwards to another one. Cutting it closes all its connections at once, as when a process is killed.
type cable struct {
	listener net.Listener
	to       string
	running  sync.WaitGroup

	mu    sync.Mutex // guards what follows
	ends  map[net.Conn]bool
	isCut bool
}

// newCable listens at from until it is cut.
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
		c.running.Go(func() { c.carry(near, far) })
		c.running.Go(func() { c.carry(far, near) })
	}
}

func (c *cable) add(near, far net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = far.Close()
		return false
	}
	c.ends[near], c.ends[far] = true, true
	return true
}

// carry copies until either end is closed, and closes both.
func (c *cable) carry(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range []net.Conn{to, from} {
		_ = end.Close()
		delete(c.ends, end)
	}
}

// cut does not wait for anything.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = true
	_ = c.listener.Close()
	for end := range c.ends {
		_ = end.Close()
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
