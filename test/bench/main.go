// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the costs of the plugin on a node: how long the runtime waits for the plugin's hooks, and the
// memory and CPU time of the plugin's process. It compares them with those of idle plugins, which do nothing. Each run
// has four plugins, which take turns: the plugin itself; an idle plugin; a second idle plugin, which shows the noise of
// the measurement; and an idle plugin that is not subscribed to the validation of containers, which shows the costs of
// the validation. Each plugin is a process of its own. It is registered with a runtime side of its own, and all runtime
// sides have the same containers.
//
// It prints a table in Markdown. Run it in the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	// idle is the socket of the idle plugin. If it is set, this process is the idle plugin.
	idle string
	// plain is true for the idle plugin that does not subscribe to the validation of containers.
	plain bool
	// plugin is the plugin's binary. If it is empty, bench builds the plugin.
	plugin string
	// creations and synchronizations are the numbers of rounds.
	creations, synchronizations int
	// live is the number of containers that run while creations are measured. many is this number for
	// synchronizations.
	live, many int
	// rest is how long the plugins are measured while nothing happens.
	rest time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.idle, "idle", "", "run as the plugin that does nothing, at this NRI socket")
	flag.BoolVar(&o.plain, "plain", false, "with --idle: run without the validation of containers")
	flag.StringVar(&o.plugin, "plugin", "", "path of the plugin's program; if empty, it is built")
	flag.IntVar(&o.creations, "creations", 1000, "number of creations of each kind")
	flag.IntVar(&o.synchronizations, "synchronizations", 15, "synchronizations")
	flag.IntVar(&o.live, "live", 250, "containers that exist during the creations")
	flag.IntVar(&o.many, "many", 500, "containers that exist during the synchronizations")
	flag.DurationVar(&o.rest, "rest", time.Minute, "how long to measure the CPU time of an idle plugin")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := bench
	if o.idle != "" {
		run = idle
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}
