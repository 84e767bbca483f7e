// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command real is the part of the lab that needs a CPU with RDT. It measures the memory access times of a container that runs alone, and
// of the same container beside neighbours that use as much memory bandwidth as they can, first without classes and then with classes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

const usage = `usage: real [-seconds 20] [-output DIR]   measure, as root
       real chase CPU BYTES               read memory at random addresses, on one CPU, until it is killed
       real stream CPU BYTES              move memory, on one CPU, until it is killed`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && (args[0] == "chase" || args[0] == "stream") {
		return work(args)
	}

	flags := flag.NewFlagSet("real", flag.ContinueOnError)
	seconds := flags.Int("seconds", 20, "duration of one measurement")
	output := flags.String("output", "", "directory for the table and the picture")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 || *seconds < 1 {
		return errors.New(usage)
	}

	scene, err := measure(ctx, time.Duration(*seconds)*time.Second)
	if err != nil {
		return err
	}

	fmt.Println(scene.Text())
	if *output == "" {
		return nil
	}

	return lab.Write(*output, []lab.Scene{*scene})
}

// work is what the containers run.
func work(args []string) error {
	if len(args) != 3 {
		return errors.New(usage)
	}

	cpu, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("CPU: %w", err)
	}

	bytes, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("bytes: %w", err)
	}

	if err := pin(cpu); err != nil {
		return err
	}

	if args[0] == "chase" {
		return chase(os.Stdout, bytes)
	}

	return stream(os.Stdout, bytes)
}
