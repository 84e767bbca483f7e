// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the costs of the plugin on a node, and compares them with goals:
//
//   - how long the runtime waits for the plugin's hooks, compared with idle plugins, which do nothing, and with plugins
//     that make only the system calls of the hook;
//   - how long a change of all class files takes, compared with the bare writes;
//   - the memory and the CPU time of the plugin's process, also while it monitors containers, and while containers come
//     and go.
//
// Each plugin is a process of its own. It is registered with a runtime side of its own, and all runtime sides have the
// same containers. The plugins take turns in random order. A second idle plugin shows the noise of the measurement.
//
// Command bench prints tables in Markdown, and returns exit code 1 if a goal is missed. Run it in the root of the repository.
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
	// calls is a file with the system calls that the idle plugin makes at each start of a container with a class. If it
	// is empty, the idle plugin makes none.
	calls string
	// plugin is the plugin's binary. If it is empty, bench builds the plugin.
	plugin string
	// `creations` and `synchronizations` are the numbers of measurements of each operation.
	creations, synchronizations int
	// live is the number of containers that run while creations are measured. `many` is the number of containers that run
	// while synchronizations are measured.
	live, many int
	// reloads is the number of changes of all classes.
	reloads int
	// churned is the number of pods that come and go.
	churned int
	// `rest` is the duration of the measurement while nothing happens.
	rest time.Duration
	// tolerance is the factor by which a measurement may exceed its goal.
	tolerance float64
	// page is a Markdown file in which the tables replace those of an earlier run. If it is empty, the tables are printed.
	page string
}

func main() {
	var o options
	flag.StringVar(&o.idle, "idle", "", "NRI socket; if set, run as a plugin that does nothing, and connect to this socket")
	flag.BoolVar(&o.plain, "plain", false, "with --idle: run without the validation of containers")
	flag.StringVar(&o.calls, "calls", "", "with --idle: file with system calls to make at each start of a container with a class")
	flag.StringVar(&o.plugin, "plugin", "", "path of the plugin's program; if empty, it is built")
	flag.IntVar(&o.creations, "creations", 1000, "number of creations of each kind")
	flag.IntVar(&o.synchronizations, "synchronizations", 15, "number of synchronizations")
	flag.IntVar(&o.reloads, "reloads", 7, "number of changes of all classes")
	flag.IntVar(&o.live, "live", 250, "containers that exist during the creations")
	flag.IntVar(&o.many, "many", 500, "containers that exist during the synchronizations")
	flag.IntVar(&o.churned, "churned", 10000, "number of pods that come and go")
	flag.Float64Var(&o.tolerance, "tolerance", 1, "factor by which a measurement may exceed its goal")
	flag.StringVar(&o.page, "page", "", "Markdown file whose tables are replaced; if empty, the tables are printed")
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
