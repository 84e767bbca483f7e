// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// callTime limits a call: a machine that hangs does not answer, and does not close the connection either.
const callTime = 10 * time.Minute

// Client controls the machine on which a server runs.
type Client struct {
	address string
	rpc     *rpc.Client
}

// Dial connects to a server.
func Dial(ctx context.Context, address string) (*Client, error) {
	connection, err := dial(ctx, address, service)
	if err != nil {
		return nil, err
	}
	return &Client{address: address, rpc: rpc.NewClient(connection)}, nil
}

func dial(ctx context.Context, address, target string) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(connection, target); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// Close ends the connection. Started programs continue to run.
func (c *Client) Close() error { return c.rpc.Close() }

// DialSocket connects to a unix socket of the machine.
func (c *Client) DialSocket(ctx context.Context, path string) (net.Conn, error) {
	return dial(ctx, c.address, path)
}

func (c *Client) call(method string, args, result any) error {
	select {
	case done := <-c.rpc.Go(service+"."+method, args, result, nil).Done:
		return done.Error
	case <-time.After(callTime):
		return fmt.Errorf("%s: the machine has not answered for %v", method, callTime)
	}
}

// Run runs a program to its end, and returns its standard output and standard error.
func (c *Client) Run(args ...string) (string, error) {
	var result Result
	if err := c.call("Run", args, &result); err != nil {
		return "", err
	}
	if result.Failure != "" {
		return result.Output, errors.New(result.Failure)
	}
	return result.Output, nil
}

// Start starts a program.
func (c *Client) Start(program Program) error {
	return c.call("Start", program, &struct{}{})
}

// End sends a signal to a program that was started, and waits for its end.
func (c *Client) End(signal Signal) error {
	return c.call("End", signal, &struct{}{})
}

// Kill kills a program whose command line begins with `commandLine`.
func (c *Client) Kill(commandLine string) error {
	return c.call("Kill", commandLine, &struct{}{})
}

// Kernel reads the kernel's state of live pods and containers.
func (c *Client) Kernel(live invariant.Live) (kernel invariant.Kernel, err error) {
	err = c.call("Kernel", live, &kernel)
	return kernel, err
}
