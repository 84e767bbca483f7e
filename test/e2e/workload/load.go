// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// operation is one transfer of the lab, at a random offset of a disk or a file.
type operation struct {
	flags    int
	size     int
	transfer func(file int, block []byte, offset int64) (int, error)
	// forward is true if the transfers go from the beginning of the file to its end, instead of to random offsets.
	forward bool
}

// operations returns the operations by name.
func operations() map[string]operation {
	return map[string]operation{
		"read":     {flags: os.O_RDONLY | unix.O_DIRECT, size: 4 << 10, transfer: syscall.Pread},
		"write":    {flags: os.O_WRONLY | unix.O_DIRECT, size: 16 << 10, transfer: syscall.Pwrite},
		"commit":   {flags: os.O_WRONLY | os.O_CREATE, size: 8 << 10, transfer: writeAndSync},
		"buffered": {flags: os.O_WRONLY | os.O_CREATE, size: blockSize, transfer: syscall.Pwrite, forward: true},
	}
}

// source is an opened disk or file.
type source struct {
	operation
	file *os.File
	size int64
}

// open opens a disk or a file. An empty file gets 16 MiB.
func open(kind, name string) (*source, error) {
	o, known := operations()[kind]
	if !known {
		return nil, errors.New(usage)
	}

	file, err := os.OpenFile(name, o.flags, 0o600)
	if err != nil {
		return nil, err
	}

	size, err := file.Seek(0, 2)
	if err != nil {
		return nil, err
	}

	if size == 0 {
		size = fileSize
		if _, err := file.WriteAt(make([]byte, size), 0); err != nil {
			return nil, fmt.Errorf("fill %s: %w", name, err)
		}
		if err := file.Sync(); err != nil {
			return nil, err
		}
	}

	return &source{operation: o, file: file, size: size}, nil
}

// repeat makes transfers, one after another, until the function `done` returns true. Its parameter is the duration of the
// last transfer.
func (s *source) repeat(done func(time.Duration) bool) error {
	// Direct I/O needs a buffer whose address is a multiple of the disk's logical block size. Mmap returns such a buffer,
	// because a mapping begins at a page boundary.
	block, err := unix.Mmap(-1, 0, s.operation.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map a buffer: %w", err)
	}

	blocks := s.size / int64(s.operation.size)
	for i := int64(0); ; i++ {
		at := i % blocks
		if !s.forward {
			at = rand.Int64N(blocks)
		}
		start := time.Now()
		if _, err := s.transfer(int(s.file.Fd()), block, at*int64(s.operation.size)); err != nil {
			return fmt.Errorf("transfer to or from %s: %w", s.file.Name(), err)
		}
		if done(time.Since(start)) {
			return nil
		}
	}
}

// latency makes one transfer at a time for some seconds, and prints the number of transfers, the median and the 99th
// percentile of their durations, and the total duration. All durations are in nanoseconds.
func latency(kind, name, seconds string) error {
	limit, err := strconv.Atoi(seconds)
	if err != nil {
		return fmt.Errorf("seconds: %w", err)
	}

	s, err := open(kind, name)
	if err != nil {
		return err
	}
	defer s.file.Close()

	var took []time.Duration
	start := time.Now()
	err = s.repeat(func(one time.Duration) bool {
		took = append(took, one)
		return time.Since(start) >= time.Duration(limit)*time.Second
	})
	if err != nil {
		return err
	}

	all := time.Since(start)
	slices.Sort(took)
	fmt.Println(len(took), took[len(took)/2].Nanoseconds(), took[len(took)*99/100].Nanoseconds(), all.Nanoseconds())
	return nil
}

// load makes transfers in some threads until the process is killed.
func load(kind, name, threads string) error {
	n, err := strconv.Atoi(threads)
	if err != nil {
		return fmt.Errorf("number of threads: %w", err)
	}

	s, err := open(kind, name)
	if err != nil {
		return err
	}
	defer s.file.Close()

	failed := make(chan error, n)
	for range n {
		go func() { failed <- s.repeat(func(time.Duration) bool { return false }) }()
	}

	return <-failed
}
