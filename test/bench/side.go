// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// side is a runtime with one plugin process, and the durations of calls.
type side struct {
	name    string
	runtime *nriruntime.Runtime
	process *exec.Cmd
	output  bytes.Buffer // read only when the process has ended
	pods    []string     // for creations, one for each of requests()
	last    map[string]time.Duration
	cpu     map[string]time.Duration
	// `now` and `most` are the resident memory and its maximum in MiB, after a rest.
	now, most float64
}

// kind describes a side.
type kind struct {
	name string
	host hostdir.Options
	// command returns the command of the plugin, given the directory of the side, the runtime's socket, and the root
	// directory of the simulated host. It writes the files that the plugin reads.
	command func(dir, socket, root string) (*exec.Cmd, error)
}

// newSide makes a runtime in a directory, and starts its plugin.
func newSide(ctx context.Context, dir string, k kind) (*side, error) {
	dir = filepath.Join(dir, strings.ReplaceAll(k.name, " ", "-"))
	root := filepath.Join(dir, "host")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}

	host, err := hostdir.New(root, k.host)
	if err != nil {
		return nil, err
	}

	s := &side{name: k.name, last: map[string]time.Duration{}, cpu: map[string]time.Duration{}}
	observe := func(call string, took time.Duration) { s.last[call] = took }
	if s.runtime, err = nriruntime.New(dir, nriruntime.Options{OCI: host, Observe: observe}); err != nil {
		return nil, err
	}

	if err := s.runtime.Start(); err != nil {
		return nil, err
	}

	if s.process, err = k.command(dir, s.runtime.Socket(), root); err == nil {
		s.process.Stderr = &s.output
		err = s.process.Start()
	}
	if err != nil {
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

// stop ends the process. Its error has the process's output.
func (s *side) stop() error {
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.runtime.Stop()
	return fmt.Errorf("%s: %s", s.name, s.output.String())
}

// fill starts containers: the number of running containers rises from the parameter `from` to the parameter `to`. Every
// second container requests a class.
func (s *side) fill(ctx context.Context, from, to int) error {
	for n := from; n < to; n++ {
		id, err := s.runtime.RunPod(ctx, pod(n, requests()[n%2]))
		if err != nil {
			return err
		}
		if err := s.start(ctx, id); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// runPods runs a pod for each of requests(), without containers.
func (s *side) runPods(ctx context.Context) error {
	for i, request := range requests() {
		id, err := s.runtime.RunPod(ctx, pod(podsOfCreations+i, request))
		if err != nil {
			return err
		}
		s.pods = append(s.pods, id)
	}
	return nil
}

// podsOfCreations is the number of the first pod whose containers are created and removed again.
const podsOfCreations = 90000

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

// memory returns the resident memory of the process, and its maximum, in MiB.
func (s *side) memory() (now, most float64, err error) {
	process, err := procfs.NewProc(s.process.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := process.NewStatus()
	const mib = 1 << 20
	return float64(status.VmRSS) / mib, float64(status.VmHWM) / mib, err
}

// scrape reads the metrics of the plugin. It returns an error unless they have the usage of all containers.
func (s *side) scrape(ctx context.Context, containers int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	metrics, err := io.ReadAll(answer.Body)
	if n := bytes.Count(metrics, []byte("\ncontainer_llc_occupancy_bytes{")); err == nil && n != containers {
		err = fmt.Errorf("%s: the metrics have the usage of %d containers, want %d", s.name, n, containers)
	}
	return errors.Join(err, answer.Body.Close())
}

// cpuTime returns the CPU time of the process, in steps of 10 ms.
func (s *side) cpuTime() (time.Duration, error) {
	process, err := procfs.NewProc(s.process.Process.Pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}
