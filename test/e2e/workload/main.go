// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Command workload runs in the containers of the tests, and is the only program in their image.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/test/lab/load"
)

const usage = `usage: workload                                wait for SIGTERM
       workload show FILE…                     print files, first thing, then wait for SIGTERM
       workload cat FILE…                      print files
       workload spawn N                        start N children that wait, then wait for SIGTERM
       workload await FILE TEXT                wait until a file has a text; prints how many milliseconds that took
       workload forks N SECONDS                N children that start one process after another for a while, then wait for SIGTERM
       workload fork SECONDS                   one of them
       workload io read|write FILE SECONDS     direct I/O on a disk or a file for a while; prints bytes and nanoseconds
       workload io fsync FILE SECONDS          the same with buffered writes, each followed by fsync
       workload latency KIND FILE SECONDS      one I/O operation after another; prints their number, the median and the 99th
                                               percentile of their durations, and the duration of all, in nanoseconds
       workload load KIND FILE THREADS         I/O operations in some threads, until it is killed
       workload steady FILE RATE SECONDS       direct reads of 4 KiB at a rate; prints what was done in each second, as JSON
       workload allocate MIB                   write to memory, then wait for SIGTERM
       workload allocators MIB                 start a child that does so, and another at each SIGHUP
       workload bursts BUSY IDLE               compute and pause in turns, for these durations, until it is killed
       workload obey FILE DISK CACHED REGION   load the CPUs, a disk, memory and the page cache of another disk as FILE says
KIND is read (direct, 4 KiB), write (direct, 16 KiB), commit (8 KiB and fdatasync) or buffered (64 KiB)`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return wait()
	case args[0] == "show":
		if err := cat(args[1:]); err != nil {
			return err
		}
		fmt.Println(shown)
		return wait()
	case args[0] == "cat":
		return cat(args[1:])
	}
	return load.Execute(commands(), args, usage)
}

func commands() map[string]load.Command {
	return map[string]load.Command{
		"spawn":      {Numbers: 1, Run: func(_ []string, n []int) error { return children(n[0]) }},
		"await":      {Texts: 2, Run: func(t []string, _ []int) error { return await(t[0], t[1]) }},
		"forks":      {Numbers: 2, Run: func(_ []string, n []int) error { return children(n[0], "fork", strconv.Itoa(n[1])) }},
		"fork":       {Numbers: 1, Run: func(_ []string, n []int) error { return fork(n[0]) }},
		"io":         {Texts: 2, Numbers: 1, Run: func(t []string, n []int) error { return transfer(t[0], t[1], n[0]) }},
		"latency":    {Texts: 2, Numbers: 1, Run: func(t []string, n []int) error { return load.Latency(t[0], t[1], n[0]) }},
		"load":       {Texts: 2, Numbers: 1, Run: func(t []string, n []int) error { return load.Run(t[0], t[1], n[0]) }},
		"steady":     {Texts: 1, Numbers: 2, Run: func(t []string, n []int) error { return load.Steady(os.Stdout, t[0], n[0], n[1]) }},
		"allocate":   {Numbers: 1, Run: func(_ []string, n []int) error { return allocate(n[0]) }},
		"allocators": {Numbers: 1, Run: func(_ []string, n []int) error { return allocators(n[0]) }},
		"bursts":     {Texts: 2, Run: func(t []string, _ []int) error { return bursts(t[0], t[1]) }},
		"obey":       {Texts: 3, Numbers: 1, Run: func(t []string, n []int) error { return obey(t[0], t[1], t[2], n[0]) }},
	}
}

// shown is the last line that "show" prints. By this line, a test that reads the log recognizes that the output is
// complete.
const shown = "that is all"

func wait() error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGINT)
	<-terminated
	return nil
}

func cat(files []string) error {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// children starts children of this program with some arguments, and waits.
func children(count int, args ...string) error {
	for range count {
		if err := exec.Command("/proc/self/exe", args...).Start(); err != nil {
			return err
		}
	}
	return wait()
}

// await polls a file for at most a minute, until the file contains the text. It prints the milliseconds that this took.
func await(file, text string) error {
	start := time.Now()
	for {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(data), text) {
			fmt.Println(time.Since(start).Milliseconds())
			return nil
		}
		if time.Since(start) > time.Minute {
			return fmt.Errorf("%s has %q, not %q", file, data, text)
		}
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // files of the kernel can only be polled
	}
}

func fork(seconds int) error {
	for start := time.Now(); time.Since(start) < time.Duration(seconds)*time.Second; {
		if err := exec.Command("/proc/self/exe", "cat").Run(); err != nil {
			return err
		}
	}
	return wait()
}

// blockSize is the size of one transfer. It is small compared with the rates under test, so that the last transfer
// hardly changes the result.
const blockSize = 64 << 10

// fileSize is the number of bytes that are written to an empty file.
const fileSize = 16 << 20

// transfer reads or writes a disk or a file, again and again from its beginning to its end.
func transfer(direction, name string, seconds int) error {
	flags, transfer := os.O_RDONLY|unix.O_DIRECT, syscall.Pread
	switch direction {
	case "write":
		flags, transfer = os.O_WRONLY|os.O_CREATE|unix.O_DIRECT, syscall.Pwrite
	case "fsync":
		flags, transfer = os.O_WRONLY|os.O_CREATE, load.WriteAndSync
	}

	file, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, 2)
	if err != nil {
		return err
	}

	if size == 0 {
		size = fileSize
	}

	// Direct I/O needs a buffer whose address is a multiple of the disk's logical block size. Mmap returns such a buffer,
	// because a mapping begins at a page boundary.
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map a buffer: %w", err)
	}

	start := time.Now()
	var done int64
	for time.Since(start) < time.Duration(seconds)*time.Second {
		n, err := transfer(int(file.Fd()), block, done%size)
		if err != nil {
			return fmt.Errorf("%s %s: %w", direction, name, err)
		}
		done += int64(n)
	}

	fmt.Println(done, time.Since(start).Nanoseconds())
	return nil
}
