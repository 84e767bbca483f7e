// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"io"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/qos-nri/qos-nri-plugin/test/lab"
)

const (
	// Threads is the number of threads of a steady load, and thus the maximum number of its concurrent requests.
	Threads = 8
	// Warmup is the number of seconds of a steady load before the measurement. In this time, the kernel adapts the
	// queues of the neighbours.
	Warmup = 2
)

// Steady reads blocks of 4 KiB from random places of a disk or file, at a rate for some seconds, and writes a []lab.Second as JSON.
func Steady(out io.Writer, name string, rate, seconds int) error {
	// A thread that waits for the disk can keep a processor of the Go runtime for up to 10 ms. Other requests would
	// then begin late.
	runtime.GOMAXPROCS(Threads + 2)
	s, err := Open("read", name)
	if err != nil {
		return err
	}
	defer s.file.Close()

	var threads []func() error
	for range Threads {
		read, err := s.transfers()
		if err != nil {
			return err
		}
		threads = append(threads, read)
	}

	served, err := offer(rate, seconds, threads)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(served)
}

// offer makes requests in threads, at a rate for some seconds, and returns the results of each second. While all
// threads are busy, requests wait in a queue with room for those of a twentieth of a second. Further ones are dropped,
// so that a slow disk does not delay all later requests. The latency of a request does not include its wait in the queue.
func offer(rate, seconds int, threads []func() error) ([]lab.Second, error) {
	var mu sync.Mutex // guards took
	took := make([][]time.Duration, Warmup+seconds)
	begin, due := time.Now(), make(chan struct{}, 1+rate/20)
	var group errgroup.Group
	for _, request := range threads {
		group.Go(func() error {
			for range due {
				start := time.Now()
				if err := request(); err != nil {
					return err
				}
				end := time.Now()
				if second := int(end.Sub(begin) / time.Second); second < len(took) {
					mu.Lock()
					took[second] = append(took[second], end.Sub(start))
					mu.Unlock()
				}
			}
			return nil
		})
	}

	for i := range rate * len(took) {
		<-time.After(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		select {
		case due <- struct{}{}:
		default:
		}
	}
	close(due)
	if err := group.Wait(); err != nil {
		return nil, err
	}

	var served []lab.Second
	for _, durations := range took[Warmup:] {
		served = append(served, lab.NewSecond(durations))
	}
	return served, nil
}
