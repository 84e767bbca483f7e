// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command agent lets tests on another machine control the machine that it runs on; see package remote. Every client can
// run programs as root, so run it only in VMs that only tests can reach.
package main

import (
	"fmt"
	"net"
	"os"

	"github.com/qos-nri/qos-nri-plugin/test/e2e/remote"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run() error {
	listener, err := net.Listen("tcp", ":7000")
	if err != nil {
		return err
	}
	return remote.Serve(listener)
}
