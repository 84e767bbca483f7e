// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command real is the part of the lab that measures this machine. It measures how well block I/O classes protect a
// process that reads a disk and, on a CPU with RDT, how well RDT classes protect the memory access times of a
// container. The process or container runs alone, then beside neighbours that use the disk or the memory as much as
// they can, and then beside them with classes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
	"github.com/qos-nri/qos-nri-plugin/test/lab/load"
)

const usage = `usage: real [-seconds 20] [-output DIR] [-dir /var/tmp]   measure, as root
       real load KIND FILE THREADS        read or write a file, until it is killed
       real steady FILE RATE SECONDS      read a file at a rate
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
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return work(args)
	}

	flags := flag.NewFlagSet("real", flag.ContinueOnError)
	seconds := flags.Int("seconds", 20, "duration of one measurement")
	output := flags.String("output", "", "directory for the tables and the pictures")
	dir := flags.String("dir", "/var/tmp", "directory on the disk to measure; gets a file of 128 MiB for the time of the measurement")
	if err := flags.Parse(args); err != nil {
		return err
	}

	if flags.NArg() > 0 || *seconds < 1 {
		return errors.New(usage)
	}

	if os.Geteuid() != 0 {
		return errors.New("to change resctrl and cgroups of this machine, run as root")
	}

	disk, err := diskScene(ctx, *dir, *seconds)
	if err != nil {
		return err
	}
	fmt.Println(disk.Text())

	memory, err := memoryScene(ctx, time.Duration(*seconds)*time.Second)
	if err != nil {
		return err
	}
	fmt.Println(memory.Text())

	if *output == "" {
		return nil
	}

	return lab.Write(*output, []lab.Scene{*disk, *memory})
}

// work runs the program of a container or process of the experiments.
func work(args []string) error {
	return load.Execute(map[string]load.Command{
		"load":   {Texts: 2, Numbers: 1, Run: func(t []string, n []int) error { return load.Run(t[0], t[1], n[0]) }},
		"steady": {Texts: 1, Numbers: 2, Run: func(t []string, n []int) error { return load.Steady(os.Stdout, t[0], n[0], n[1]) }},
		"chase":  {Numbers: 2, Run: func(_ []string, n []int) error { return onCPU(n[0], func() error { return chase(os.Stdout, n[1]) }) }},
		"stream": {Numbers: 2, Run: func(_ []string, n []int) error { return onCPU(n[0], func() error { return stream(os.Stdout, n[1]) }) }},
	}, args, usage)
}
