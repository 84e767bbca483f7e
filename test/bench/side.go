// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// side is a runtime with one plugin, a process, and what the runtime waited for.
type side struct {
	name    string
	runtime *nriruntime.Runtime
	process *exec.Cmd
	said    bytes.Buffer // read only when the process has ended
	pods    [2]string    // for creations: without and with a request
	last    map[string]time.Duration
	atRest  time.Duration // of CPU
}

// newSide makes a runtime in a directory, and starts the command that makeCommand makes for its socket and host.
func newSide(ctx context.Context, dir, name string, makeCommand func(dir, socket, root string) *exec.Cmd) (*side, error) {
	dir = filepath.Join(dir, name)
	root := filepath.Join(dir, "host")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	host, err := hostdir.New(root)
	if err != nil {
		return nil, err
	}
	s := &side{name: name, last: map[string]time.Duration{}}
	observe := func(call string, took time.Duration) { s.last[call] = took }
	if s.runtime, err = nriruntime.New(dir, nriruntime.Options{OCI: host, Observe: observe}); err != nil {
		return nil, err
	}
	if err := s.runtime.Start(); err != nil {
		return nil, err
	}
	s.process = makeCommand(dir, s.runtime.Socket(), root)
	s.process.Stderr = &s.said
	if err := s.process.Start(); err != nil {
		s.runtime.Stop()
		return nil, err
	}
	err = s.synchronized(ctx, 1)
	return s, err
}

func (s *side) synchronized(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := s.runtime.WaitSynchronized(ctx, n); err != nil {
		return errors.Join(err, s.stop())
	}
	return nil
}

// stop ends the process. Its error is what the process said.
func (s *side) stop() error {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.runtime.Stop()
	return fmt.Errorf("%s said: %s", s.name, s.said.String())
}

// fill starts containers, every second of them with a class, until there are as many as wanted.
func (s *side) fill(ctx context.Context, from, to int) error {
	for n := from; n < to; n++ {
		id, err := s.runtime.RunPod(ctx, pod(n, n%2 == 0))
		if err != nil {
			return err
		}
		if err := s.start(ctx, id); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if n < len(s.pods) {
			s.pods[1-n] = id
		}
	}
	return nil
}

func (s *side) start(ctx context.Context, pod string) error {
	id, err := s.runtime.CreateContainer(ctx, pod, container())
	if err != nil {
		return err
	}
	return s.runtime.StartContainer(ctx, id)
}

// create makes, starts and removes a container, and returns how long each call took.
func (s *side) create(ctx context.Context, request int) (map[string]time.Duration, error) {
	config := container()
	id, err := s.runtime.CreateContainer(ctx, s.pods[request], config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := s.runtime.StartContainer(ctx, id); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return s.last, s.runtime.RemoveContainer(ctx, id)
}

func (s *side) synchronize(ctx context.Context) (time.Duration, error) {
	n := s.runtime.Synchronizations()
	if err := s.runtime.Restart(); err != nil {
		return 0, err
	}
	err := s.synchronized(ctx, n+1)
	return s.last["Synchronize"], err
}

// memory reads VmRSS and VmHWM of the process, in MiB.
func (s *side) memory() (now, most float64, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", s.process.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch {
		case err != nil:
		case key == "VmRSS":
			now = float64(kib) / 1024
		case key == "VmHWM":
			most = float64(kib) / 1024
		}
	}
	return now, most, nil
}

// cpuTime is what the process has taken of CPUs, in steps of 10 ms: utime and stime of proc_pid_stat(5).
func (s *side) cpuTime() (time.Duration, error) {
	const tick, state, user = 10 * time.Millisecond, 3, 14
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < user+2-state {
		return 0, fmt.Errorf("no times of %s in %q", s.name, stat)
	}
	inUser, err := strconv.Atoi(fields[user-state])
	inKernel, errKernel := strconv.Atoi(fields[user+1-state])
	return time.Duration(inUser+inKernel) * tick, errors.Join(err, errKernel)
}
