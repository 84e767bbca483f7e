// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

// Package load makes the I/O of the lab's containers: it reads and writes disks and files.
package load

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// fileSize is the size that an empty file gets.
	fileSize = 16 << 20
	// bufferedBlock is the size of a buffered write. It is small compared with the rates under test, so that the last transfer hardly changes
	// the result.
	bufferedBlock = 64 << 10
)

// operation is one transfer of the lab, at a random offset of a disk or a file.
type operation struct {
	flags    int
	size     int
	transfer func(file int, block []byte, offset int64) (int, error)
	// forward is true if the offsets go from the beginning of the file to its end, instead of being random.
	forward bool
}

// operations returns the operations by name.
func operations() map[string]operation {
	return map[string]operation{
		"read":     {flags: os.O_RDONLY | unix.O_DIRECT, size: 4 << 10, transfer: syscall.Pread},
		"write":    {flags: os.O_WRONLY | unix.O_DIRECT, size: 16 << 10, transfer: syscall.Pwrite},
		"commit":   {flags: os.O_WRONLY | os.O_CREATE, size: 8 << 10, transfer: WriteAndSync},
		"buffered": {flags: os.O_WRONLY | os.O_CREATE, size: bufferedBlock, transfer: syscall.Pwrite, forward: true},
	}
}

// WriteAndSync writes a block, and waits until the disk has it.
func WriteAndSync(file int, block []byte, offset int64) (int, error) {
	n, err := syscall.Pwrite(file, block, offset)
	if err == nil {
		err = syscall.Fdatasync(file)
	}
	return n, err
}

// Source is an opened disk or file.
type Source struct {
	operation
	file *os.File
	size int64
}

// Open opens a disk or a file. An empty file gets 16 MiB. A kind is read (direct, 4 KiB), write (direct, 16 KiB), commit (8 KiB and
// fdatasync) or buffered (64 KiB).
func Open(kind, name string) (*Source, error) {
	o, known := operations()[kind]
	if !known {
		return nil, fmt.Errorf("unknown kind of I/O operations %q", kind)
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

	if size < int64(o.size) {
		return nil, fmt.Errorf("%s has %d bytes, fewer than a block of %d; choose a larger file", name, size, o.size)
	}
	return &Source{operation: o, file: file, size: size}, nil
}

// transfers returns a function that makes one transfer. The function has a buffer, so each thread needs its own.
func (s *Source) transfers() (next func() error, err error) {
	// Direct I/O needs a buffer whose address is a multiple of the disk's logical block size. Mmap returns such a buffer,
	// because a mapping begins at a page boundary.
	block, err := unix.Mmap(-1, 0, s.operation.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map a buffer: %w", err)
	}

	blocks, i := s.size/int64(s.operation.size), int64(0)
	return func() error {
		at := i % blocks
		i++
		if !s.forward {
			at = rand.Int64N(blocks)
		}
		if _, err := s.transfer(int(s.file.Fd()), block, at*int64(s.operation.size)); err != nil {
			return fmt.Errorf("transfer to or from %s: %w", s.file.Name(), err)
		}
		return nil
	}, nil
}

// Repeat makes transfers, one after another, and passes the duration of each one to `done`, until `done` returns true.
func (s *Source) Repeat(done func(time.Duration) bool) error {
	next, err := s.transfers()
	if err != nil {
		return err
	}
	for {
		start := time.Now()
		if err := next(); err != nil {
			return err
		}
		if done(time.Since(start)) {
			return nil
		}
	}
}

// Latency makes one transfer at a time for some seconds, and prints the number of transfers, the median and the 99th
// percentile of their durations, and the total duration. All durations are in nanoseconds.
func Latency(kind, name string, seconds int) error {
	s, err := Open(kind, name)
	if err != nil {
		return err
	}
	defer s.file.Close()

	var took []time.Duration
	start := time.Now()
	err = s.Repeat(func(one time.Duration) bool {
		took = append(took, one)
		return time.Since(start) >= time.Duration(seconds)*time.Second
	})
	if err != nil {
		return err
	}

	all := time.Since(start)
	slices.Sort(took)
	fmt.Println(len(took), took[len(took)/2].Nanoseconds(), took[len(took)*99/100].Nanoseconds(), all.Nanoseconds())
	return nil
}

// Run makes transfers in some threads until the process is killed.
func Run(kind, name string, threads int) error {
	s, err := Open(kind, name)
	if err != nil {
		return err
	}
	defer s.file.Close()

	failed := make(chan error, threads)
	for range threads {
		go func() { failed <- s.Repeat(func(time.Duration) bool { return false }) }()
	}

	return <-failed
}
