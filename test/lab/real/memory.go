// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	cacheLine = 64
	// lineWords is the number of elements in a cache line.
	lineWords = cacheLine / 8
	// batch is the number of accesses that are timed together. Timing each access would take longer than the access.
	batch = 1000
)

// onCPU calls f on a CPU.
func onCPU(cpu int, f func() error) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("run on CPU %d: %w", cpu, err)
	}
	return f()
}

// cycle returns memory of this size, in which the first word of each cache line is the index of another line's first word. The indexes
// make one cycle through all lines, in random order, so that the CPU cannot prefetch the next line.
func cycle(bytes int) []uint64 {
	words := make([]uint64, bytes/cacheLine*lineWords)
	order := rand.Perm(bytes / cacheLine)
	for i, line := range order {
		words[line*lineWords] = uint64(order[(i+1)%len(order)] * lineWords)
	}
	return words
}

// chase reads cache lines, each of which has the address of the next one, and prints once a second the median and the 99th percentile
// of the duration of an access, in nanoseconds. It returns when it cannot print any more.
func chase(out io.Writer, bytes int) error {
	words := cycle(bytes)
	at := uint64(0)
	for {
		var durations []float64
		for second := time.Now(); time.Since(second) < time.Second; {
			start := time.Now()
			for range batch {
				at = words[at]
			}
			durations = append(durations, float64(time.Since(start).Nanoseconds())/batch)
		}
		slices.Sort(durations)
		if _, err := fmt.Fprintln(out, durations[len(durations)/2], durations[len(durations)*99/100]); err != nil {
			return err
		}
	}
}

// stream reads one array and writes another, from the beginning to the end, and prints once a second the number of
// transferred bytes per second. It returns when it cannot print any more.
func stream(out io.Writer, bytes int) error {
	from, to := make([]uint64, bytes/16), make([]uint64, bytes/16)
	for {
		moved, second := 0, time.Now()
		for time.Since(second) < time.Second {
			for i := range from {
				to[i] = from[i] + 1
			}
			moved += bytes
		}
		if _, err := fmt.Fprintln(out, float64(moved)/time.Since(second).Seconds()); err != nil {
			return err
		}
	}
}
