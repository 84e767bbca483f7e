// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demand records what workloads read from and write to a disk, without a limit and with the limit of each of several classes. It
// needs root, and a Linux kernel with cgroup v1's blkio controller and zram. The disk is in memory, so that only limits slow it down.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demand:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("demand", flag.ContinueOnError)
	points := flags.Int("points", 100, "number of points of each series")
	seconds := flags.Int("seconds", 3, "duration of a point in seconds")
	output := flags.String("output", "series.txt", "file for the series")
	if err := flags.Parse(args); err != nil {
		return err
	}

	disk, err := newDisk()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.remove()) }()
	trials, err := newTrials(disk, workloads(*points**seconds))
	defer func() { err = errors.Join(err, removeTrials(trials)) }()
	if err != nil {
		return err
	}

	if err := record(ctx, trials, *points, time.Duration(*seconds)*time.Second); err != nil {
		return err
	}
	return write(*output, trials, *seconds)
}

// record runs all trials concurrently, and reads their counters at the end of each point (interval).
func record(ctx context.Context, trials []*trial, points int, interval time.Duration) error {
	var working errgroup.Group
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); _ = working.Wait() }()
	begin := time.Now()
	for _, t := range trials {
		working.Go(func() error { return t.work(ctx, begin) })
	}

	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for range points {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		for _, t := range trials {
			if err := t.sample(interval); err != nil {
				return err
			}
		}
	}
	cancel()
	return working.Wait()
}

// write writes the series. For each workload, there is a line with its name, the counted value and the duration of a
// point. Then there is a line for each trial: the bound, or 0 without a limit, and for each point the value per second
// and, if it is not 0, the per cent of the time in which the workload waited for the disk.
func write(file string, trials []*trial, seconds int) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		return err
	}
	fmt.Fprintf(w, "# What workloads read and wrote per second, without a limit (0) and with the limits of classes.\n"+
		"# Recorded by test/lab/demand with Linux %s, cgroup v1 (blkio.throttle), on a disk in memory (zram).\n", unix.ByteSliceToString(host.Release[:]))
	last := ""
	for _, t := range trials {
		if t.name != last {
			fmt.Fprintf(w, "workload %s %s %d\n", t.name, t.limit.name, seconds)
			last = t.name
		}
		fmt.Fprint(w, int(t.bound))
		for _, p := range t.points {
			fmt.Fprint(w, " ", p.value)
			if p.waited > 0 {
				fmt.Fprint(w, "/", p.waited)
			}
		}
		fmt.Fprintln(w)
	}
	return errors.Join(w.Flush(), out.Close())
}
