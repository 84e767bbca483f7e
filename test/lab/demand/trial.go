// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// root is the directory of the blkio controller.
const root = "/sys/fs/cgroup/blkio/qos-lab-demand"

// diskSize is the size of the disk in bytes.
const diskSize = 64 << 20

// zram is the directory of zram, the driver of disks in memory.
const zram = "/sys/class/zram-control"

// disk is a disk in memory (zram). The kernel carries out its operations in the thread that requests them.
type disk struct{ id, path, number string }

func newDisk() (*disk, error) {
	id, err := os.ReadFile(filepath.Join(zram, "hot_add")) // reading this file adds a disk
	if err != nil {
		return nil, fmt.Errorf("add a disk in memory: %w; this machine needs CONFIG_ZRAM", err)
	}
	d := &disk{id: strings.TrimSpace(string(id))}
	d.path = "/dev/zram" + d.id
	if err := os.WriteFile("/sys/block/zram"+d.id+"/disksize", []byte(strconv.Itoa(diskSize)), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("size %s: %w", d.path, err), d.remove())
	}
	number, err := os.ReadFile("/sys/block/zram" + d.id + "/dev")
	d.number = strings.TrimSpace(string(number))
	return d, err
}

func (d *disk) remove() error {
	return os.WriteFile(filepath.Join(zram, "hot_remove"), []byte(d.id), 0)
}

// point has a value per second, and the per cent of the time in which the workload waited for the disk.
type point struct{ value, waited int }

// trial is a run of a workload in a cgroup.
type trial struct {
	workload
	disk *disk
	// bound is 0 without a limit.
	bound float64
	dir   string
	// waiting is the time for which the workload has waited for the disk.
	waiting atomic.Int64
	points  []point
	// `before` and `waited` are the counter and the value of `waiting` at the end of the last point.
	before uint64
	waited time.Duration
}

func newTrials(d *disk, all []workload) (trials []*trial, err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	for _, w := range all {
		for _, bound := range append([]float64{0}, w.bounds...) {
			t := &trial{workload: w, disk: d, bound: bound, dir: filepath.Join(root, fmt.Sprint(w.name, "-", int(bound)))}
			if err := os.MkdirAll(t.dir, 0o755); err != nil {
				return trials, err
			}
			trials = append(trials, t)
			if bound == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(t.dir, w.file), fmt.Appendf(nil, "%s %d", d.number, int(bound)), 0); err != nil {
				return trials, err
			}
		}
	}
	return trials, nil
}

func removeTrials(trials []*trial) (err error) {
	for _, t := range trials {
		err = errors.Join(err, os.Remove(t.dir))
	}
	return errors.Join(err, os.Remove(root))
}

// work does the operations of the workload, one after another, until `ctx` ends. Operations that become due while it
// waits for the disk are done later. It ends its thread, which is in the cgroup.
func (t *trial) work(ctx context.Context, begin time.Time) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it is never unlocked, so the thread ends with the goroutine
		done <- t.operations(ctx, begin)
	}()
	return <-done
}

func (t *trial) operations(ctx context.Context, begin time.Time) error {
	if err := os.WriteFile(filepath.Join(t.dir, "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0); err != nil {
		return err
	}
	device, err := unix.Open(t.disk.path, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.disk.path, err)
	}
	defer func() { _ = unix.Close(device) }()
	block := aligned(t.bytes)

	requested, finished := 0.0, 0.0
	for slot := 0; slot < len(t.requested); slot++ {
		wait := time.NewTimer(time.Until(begin.Add(time.Duration(slot) * time.Second / slots)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
		for requested += t.requested[slot]; finished+1 <= requested && ctx.Err() == nil; finished++ {
			at := rand.Int64N(diskSize/int64(t.bytes)) * int64(t.bytes)
			started := time.Now()
			if t.operation == "Write" {
				_, err = unix.Pwrite(device, block, at)
			} else {
				_, err = unix.Pread(device, block, at)
			}
			t.waiting.Add(int64(time.Since(started)))
			if err != nil {
				return fmt.Errorf("%s of %s: %w", t.operation, t.disk.path, err)
			}
		}
	}
	return nil
}

// aligned returns a buffer that is aligned for direct I/O.
func aligned(size int) []byte {
	const alignment = 4096
	buffer := make([]byte, size+alignment)
	at := int(uintptr(unsafe.Pointer(&buffer[0])) % alignment)
	return buffer[alignment-at:][:size]
}

// sample adds the value of a point.
func (t *trial) sample(interval time.Duration) error {
	data, err := os.ReadFile(filepath.Join(t.dir, t.counts()))
	if err != nil {
		return err
	}
	value := uint64(0)
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == t.disk.number && fields[1] == t.operation {
			if value, err = strconv.ParseUint(fields[2], 10, 64); err != nil {
				return err
			}
		}
	}
	waited := time.Duration(t.waiting.Load())
	t.points = append(t.points, point{int(float64(value-t.before) / interval.Seconds()), min(100, int(100*(waited-t.waited)/interval))})
	t.before, t.waited = value, waited
	return nil
}
