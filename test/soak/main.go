// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command soak tests a node with random operations for some minutes: it creates and removes pods and containers,
// changes their classes, replaces class files, and kills the plugin during its work. A seed determines the operations.
// After each round soak checks the invariants (test/invariant). It prints a summary, and returns exit code 1 for a
// violation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/soak/simulated"
	"github.com/qos-nri/qos-nri-plugin/test/soak/steps"
)

func main() {
	minutes := flag.Float64("minutes", 5, "duration of the soak")
	o := steps.Options{Out: os.Stdout, Progress: time.Minute}
	flag.Uint64Var(&o.Seed, "seed", 0, "seed of the random operations; 0 for a new one each time")
	flag.IntVar(&o.Steps, "steps", 20, "steps of a round, after which everything is checked")
	flag.IntVar(&o.Rounds, "rounds", 0, "maximum number of rounds; 0 for no limit")
	flag.DurationVar(&o.Patience, "patience", 45*time.Second, "longest time that the node may take to settle after a round")
	flag.BoolVar(&o.Sabotage, "sabotage", true, "also add and remove disks, and change the plugin's groups and limits from outside")
	ignored := regexpFlag{}
	flag.Var(&ignored, "ignore", "regular expression of known violations, which do not count")
	verbose := flag.Bool("v", false, "print every operation")
	flag.Parse()
	o.Ignore = ignored.matches
	if *verbose {
		o.Operations = os.Stdout
	}

	o.For = time.Duration(*minutes * float64(time.Minute))
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		stop()
		os.Exit(1)
	}
}

// run prints the seed, the progress and the summary, and after a violation also the plugin's log.
func run(ctx context.Context, o steps.Options, out io.Writer) error {
	fmt.Fprintf(out, "seed %d, for %s\n", o.Seed, o.For)
	log := &tail{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	slog.SetDefault(logger) // NRI's runtime side logs to the default logger
	site, err := simulated.New(logger)
	if err != nil {
		return err
	}

	summary, err := steps.Run(ctx, site, o)
	err = errors.Join(err, site.Close())
	if err != nil {
		fmt.Fprintf(out, "\nThe end of the log:\n%s\n", log)
	}

	fmt.Fprintf(out, "\n%s", summary)
	return err
}
