// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// allocate writes to `megabytes` MiB of memory, and then waits.
func allocate(megabytes int) error {
	memory, err := unix.Mmap(-1, 0, megabytes<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return wait()
}

// allocators starts a child that allocates memory, and another one at each SIGHUP.
func allocators(megabytes int) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	signals <- syscall.SIGHUP
	for s := range signals {
		if s != syscall.SIGHUP {
			break
		}
		child := exec.Command("/proc/self/exe", "allocate", strconv.Itoa(megabytes))
		if err := child.Start(); err != nil {
			return err
		}
		go func() { _ = child.Wait() }()
	}
	return nil
}

// bursts computes for a time and pauses for another, until it is killed.
func bursts(busy, idle string) error {
	computing, err := time.ParseDuration(busy)
	if err != nil {
		return err
	}
	pausing, err := time.ParseDuration(idle)
	if err != nil {
		return err
	}
	for {
		for start := time.Now(); time.Since(start) < computing; {
		}
		time.Sleep(pausing) //nolint:forbidigo // the pause is the workload
	}
}
