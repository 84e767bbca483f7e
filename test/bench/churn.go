// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/prometheus/procfs"

	"github.com/qos-nri/qos-nri-plugin/internal/pause"
)

// mostGrowth is the permitted growth of the plugin's resident memory while containers come and go, in MiB. The Go
// runtime returns memory to the kernel in the background, so the same heap has a different size at different times.
const mostGrowth = 2.0

// mostNewFiles is the permitted growth of the plugin's number of open files. Some growth is permitted, because the
// runtime may open a connection at any time.
const mostNewFiles = 2

// footprint has the resources that a process uses.
type footprint struct {
	// memory is the resident memory in MiB.
	memory float64
	// `files` and `threads` are the numbers of open files and of threads.
	files, threads int
}

// churn creates, starts and removes pods with one container each, and returns the footprint of the plugin's process after the first
// tenth of the pods and after the last one. Every second container requests a class.
func churn(ctx context.Context, o options, s *side) (early, late footprint, err error) {
	for n := range o.churned {
		if n == o.churned/10 {
			if early, err = s.footprint(ctx); err != nil {
				return early, late, err
			}
		}
		if err := s.come(ctx, n); err != nil {
			return early, late, fmt.Errorf("pod %d: %w", n, err)
		}
	}
	late, err = s.footprint(ctx)
	return early, late, err
}

// come runs a pod and removes it.
func (s *side) come(ctx context.Context, n int) error {
	podID, err := s.runtime.RunPod(ctx, pod(n, requests()[n%2]))
	if err != nil {
		return err
	}
	if err := s.start(ctx, podID); err != nil {
		return err
	}
	return s.runtime.RemovePod(ctx, podID)
}

// footprint waits until the process has freed memory, and then returns what it uses.
func (s *side) footprint(ctx context.Context) (f footprint, err error) {
	pause.For(ctx, settling)
	if f.memory, _, err = s.memory(); err != nil {
		return f, err
	}

	process, err := procfs.NewProc(s.process.Process.Pid)
	if err != nil {
		return f, err
	}

	stat, err := process.Stat()
	if err != nil {
		return f, err
	}

	f.threads = stat.NumThreads
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.process.Process.Pid))
	f.files = len(open)
	return f, err
}
