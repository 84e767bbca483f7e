// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows what qos-nri-plugin does. It takes some seconds and works on any machine. It registers the plugin
// with the real runtime side of NRI, on a simulated machine with RDT. With --real, it uses the resctrl and the cgroups
// of this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	real := flag.Bool("real", false, "use this machine's resctrl and cgroups, as root")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *real, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
