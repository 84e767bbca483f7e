// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// Target is an open disk or file.
type Target interface {
	io.ReaderAt
	io.WriterAt
}

const (
	smallRequest = 4 << 10 // the unit of "iops" in io.cost.model
	largeRequest = 1 << 20
	// largeDepth is the number of concurrent large requests. They have 16 MiB, which a fast disk transfers in 2 ms.
	largeDepth = 16
	// samples is the number of times that a load counts its requests.
	samples = 20
	// keptLatencies is the number of latencies that each goroutine keeps, a random sample of all.
	keptLatencies = 2048
)

// load is one measurement. It makes requests of `size` bytes, `depth` of them at a time.
type load struct {
	name          string
	write, random bool
	size, depth   int
	// rate is the number of requests that begin in a second. 0 means no limit.
	rate float64
}

// measured is the result of a load.
type measured struct {
	Speed
	// latencies has the latencies of some requests, unsorted.
	latencies []time.Duration
	// requests is the number of all requests.
	requests int64
}

// running is the state of a load.
type running struct {
	load
	target Target
	// span is the number of requests that fit into the part of the target that the load uses.
	span     int64
	begin    time.Time
	next     atomic.Int64 // number of the next request
	done     atomic.Int64
	finished atomic.Bool
}

// run runs the load for a duration. It calls `tick` at regular times with the number of finished requests. If `ctx` ends,
// run waits for the requests in flight, and returns the error of `ctx`.
func (l load) run(ctx context.Context, target Target, span int64, duration time.Duration, tick func(elapsed time.Duration, done int64)) (measured, error) {
	r := &running{load: l, target: target, span: span / int64(l.size), begin: time.Now()}
	if r.span == 0 {
		return measured{}, fmt.Errorf("%d bytes are too few for requests of %d bytes", span, l.size)
	}

	var wait sync.WaitGroup
	all, errs := make([][]time.Duration, l.depth), make([]error, l.depth)
	for i := range l.depth {
		wait.Go(func() {
			if all[i], errs[i] = r.work(ctx); errs[i] != nil {
				r.finished.Store(true)
			}
		})
	}
	counts := r.count(ctx, duration, tick)
	r.finished.Store(true)
	wait.Wait()

	result := measured{Speed: speedOf(counts), requests: r.done.Load()}
	for _, latencies := range all {
		result.latencies = append(result.latencies, latencies...)
	}
	return result, errors.Join(errors.Join(errs...), ctx.Err())
}

// count counts the finished requests until the duration has passed or a request has failed.
func (r *running) count(ctx context.Context, duration time.Duration, tick func(elapsed time.Duration, done int64)) (counts []count) {
	ticker := time.NewTicker(duration / samples)
	defer ticker.Stop()
	for range samples {
		select {
		case <-ctx.Done():
			return counts
		case <-ticker.C:
		}
		one := count{time.Since(r.begin), r.done.Load()}
		counts = append(counts, one)
		tick(one.at, one.done)
		if r.finished.Load() {
			return counts
		}
	}
	return counts
}

// work makes requests one after another, and returns some of their latencies.
func (r *running) work(ctx context.Context) (latencies []time.Duration, err error) {
	buffer, err := unix.Mmap(-1, 0, r.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, for O_DIRECT
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	defer func() { err = errors.Join(err, unix.Munmap(buffer)) }()
	if _, err := rand.Read(buffer); err != nil { // a disk might compress other data
		return nil, err
	}

	for n := 0; !r.finished.Load() && ctx.Err() == nil; n++ {
		number := r.next.Add(1) - 1
		if !r.pace(ctx, number) {
			break
		}
		if r.random {
			number = mathrand.Int64N(r.span)
		}
		before := time.Now()
		if err := r.request(buffer, number%r.span*int64(r.size)); err != nil {
			return latencies, err
		}
		r.done.Add(1)
		latencies = keep(latencies, time.Since(before), n)
	}
	return latencies, nil
}

// keep adds latency number `n` to a random sample of keptLatencies latencies, in which each has the same probability.
func keep(latencies []time.Duration, one time.Duration, n int) []time.Duration {
	if len(latencies) < keptLatencies {
		return append(latencies, one)
	}
	if i := mathrand.IntN(n + 1); i < keptLatencies {
		latencies[i] = one
	}
	return latencies
}

// pace waits for the time at which a request has to begin. It returns false if the load ends before that time.
func (r *running) pace(ctx context.Context, number int64) bool {
	if r.rate == 0 {
		return true
	}
	due := time.Duration(float64(number) / r.rate * float64(time.Second))
	if wait := due - time.Since(r.begin); wait > 0 {
		pause.For(ctx, wait)
	}
	return !r.finished.Load() && ctx.Err() == nil
}

func (r *running) request(buffer []byte, offset int64) error {
	if r.write {
		_, err := r.target.WriteAt(buffer, offset)
		return err
	}
	_, err := r.target.ReadAt(buffer, offset)
	return err
}
