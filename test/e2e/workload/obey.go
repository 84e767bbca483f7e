// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/test/lab/load"
)

// turn is the duration of the load after each reading of the file.
const turn = 500 * time.Millisecond

// wanted is the load of one turn. Each thread computes for some milliseconds and makes some operations. One more thread holds memory, and
// reads blocks through the page cache.
type wanted struct{ threads, milliseconds, operations, memory, blocks int }

// obey makes the load that a file describes, until it is killed. It reads directly from `disk`, and through the page
// cache from `cached`, where it uses the 128 MiB with the number `region`.
func obey(file, disk, cached string, region int) error {
	const threads = 8
	through, err := os.Open(cached)
	if err != nil {
		return err
	}

	var now atomic.Pointer[wanted]
	now.Store(&wanted{})
	failed := make(chan error, threads+1)
	for i := range threads {
		from, err := load.Open("read", disk)
		if err != nil {
			return err
		}
		go func() { failed <- turns(&now, func(w wanted) error { return work(from, i, w) }) }()
	}
	memory := &holding{file: through, begin: int64(region) * regionSize}
	go func() { failed <- turns(&now, memory.work) }()

	for {
		select {
		case err := <-failed:
			return err
		case <-time.After(turn):
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		next := wanted{}
		if n, _ := fmt.Sscan(string(data), &next.threads, &next.milliseconds, &next.operations, &next.memory, &next.blocks); n == 5 {
			now.Store(&next) // a file that cannot be parsed is being written
		}
	}
}

// turns does the work of each turn, and pauses for the rest of it.
func turns(now *atomic.Pointer[wanted], work func(wanted) error) error {
	for {
		began := time.Now()
		if err := work(*now.Load()); err != nil {
			return err
		}
		time.Sleep(turn - time.Since(began)) //nolint:forbidigo // the pause is part of the load
	}
}

// work computes and reads as one of the threads.
func work(from *load.Source, thread int, w wanted) error {
	if thread >= w.threads {
		return nil
	}
	began := time.Now()
	for time.Since(began) < time.Duration(w.milliseconds)*time.Millisecond {
	}
	left := w.operations
	if left == 0 {
		return nil
	}
	return from.Repeat(func(time.Duration) bool { left--; return left == 0 || time.Since(began) > turn })
}

// regionSize is the size of a region of the disk that is read through the page cache.
const regionSize = 128 << 20

// holding is the memory that the workload holds, and the blocks that it reads through the page cache, from the first to the last again and
// again.
type holding struct {
	mapped []byte
	file   *os.File
	begin  int64
	next   int64
}

const (
	// cachedBlocks is the number of blocks that are read before the first one is read again.
	cachedBlocks = 1024
	cachedBlock  = 64 << 10
)

func (h *holding) work(w wanted) error {
	began := time.Now()
	if len(h.mapped) != w.memory<<20 {
		if err := h.hold(w.memory << 20); err != nil {
			return err
		}
	}
	block := make([]byte, cachedBlock)
	for i := 0; i < w.blocks && time.Since(began) < turn; i++ {
		if _, err := h.file.ReadAt(block, h.begin+h.next%cachedBlocks*cachedBlock); err != nil {
			return err
		}
		h.next++
	}
	return nil
}

// hold frees the memory, and allocates `bytes` bytes instead.
func (h *holding) hold(bytes int) (err error) {
	if h.mapped != nil {
		if err := unix.Munmap(h.mapped); err != nil {
			return err
		}
		h.mapped = nil
	}
	if bytes == 0 {
		return nil
	}
	h.mapped, err = unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	for i := 0; i < len(h.mapped); i += os.Getpagesize() {
		h.mapped[i] = 1
	}
	return err
}
