// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	qosv1alpha1 "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
	"github.com/qos-nri/qos-nri-plugin/internal/pause"
	"github.com/qos-nri/qos-nri-plugin/internal/shell"
	"github.com/qos-nri/qos-nri-plugin/test/lab"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/stage"
)

// classFile gives most of the cache to one class. The neighbours share the rest. In the class slow, they also get
// little memory bandwidth.
const classFile = `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources:
- name: k8s.io/rdt
  classes: [{name: critical}, {name: batch}, {name: slow}]
  rdt:
    options: {l3: {optional: true}, mb: {optional: true}}
    partitions:
      critical:
        l3Allocation: "60%"
        mbAllocation: ["100%"]
        classes: {critical: {}}
      rest:
        l3Allocation: "40%"
        mbAllocation: ["100%"]
        classes: {batch: {}, slow: {mbAllocation: ["20%"]}}
`

// maxNeighbours bounds the load.
const maxNeighbours = 8

// patience limits the time that containers may take to print something. It is a multiple of the duration of a
// measurement.
const patience = 10

// The situations with classes.
const (
	cacheDivided  = "cache divided"
	lessBandwidth = "and less memory bandwidth"
)

// memoryScene runs the experiment on this machine, and afterwards removes the pods and the classes. If the machine
// cannot partition its cache, the scene has the reason.
func memoryScene(ctx context.Context, duration time.Duration) (scene *lab.Scene, err error) {
	machine, shared, err := findMachine()
	if err != nil {
		scene := &lab.Scene{Name: "memory", Title: "Memory accesses"}
		scene.CannotShow(cacheDivided, err.Error())
		scene.CannotShow(lessBandwidth, err.Error())
		return scene, nil
	}

	s, err := stage.Raise(ctx, machine, classFile)
	defer func() { err = errors.Join(err, s.Down()) }()
	if err != nil {
		return nil, err
	}

	status, err := s.API.Status(ctx, &qosv1alpha1.StatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}

	fmt.Println(shell.Status(status))

	e := &experiment{Stage: s, machine: machine, domain: shared, duration: duration}
	defer func() { err = errors.Join(err, e.removePods(ctx)) }()
	return e.run(ctx)
}

// findMachine returns this machine and a domain with CPUs that share a cache. If the machine cannot partition a cache,
// the error has the reason.
func findMachine() (*stage.Machine, domain, error) {
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return nil, domain{}, err
	}
	if !slices.Contains(strings.Fields(string(filesystems)), "resctrl") {
		return nil, domain{}, errors.New("it has no resctrl; this needs a physical CPU with RDT, and a kernel that supports it")
	}

	machine, err := stage.NewMachine()
	if err != nil {
		return nil, domain{}, err
	}

	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil, domain{}, fmt.Errorf("read this program's CPUs: %w", err)
	}

	shared, err := findDomain(os.DirFS("/sys"), &allowed)
	return machine, shared, err
}

// experiment runs containers, and measures them for a lab.Scene.
type experiment struct {
	*stage.Stage

	machine  *stage.Machine
	domain   domain
	duration time.Duration // of one measurement
	pods     []string
}

func (e *experiment) run(ctx context.Context) (*lab.Scene, error) {
	neighbours := e.domain.cpus[1:min(len(e.domain.cpus), maxNeighbours+1)]
	scene := &lab.Scene{
		Name:    "memory",
		Title:   fmt.Sprintf("Memory accesses, number of neighbours: %d", len(neighbours)),
		Columns: []string{"p50 (ns)", "p99 (ns)", "neighbours (GB/s)"},
	}

	// The memory that the container reads fits into the container's part of the cache.
	critical, err := e.start(ctx, "critical", "chase", e.domain.cpus[0], e.domain.size*4/10)
	if err != nil {
		return nil, err
	}

	var noisy []*container
	add := func(situation string) error {
		values, err := e.values(ctx, critical, noisy)
		if err == nil {
			scene.Add(situation, values...)
		}
		return err
	}

	if err := add("alone"); err != nil {
		return nil, err
	}

	for _, cpu := range neighbours {
		c, err := e.start(ctx, fmt.Sprint("noisy-", cpu), "stream", cpu, e.domain.size*4)
		if err != nil {
			return nil, err
		}
		noisy = append(noisy, c)
	}

	if err := add("no classes"); err != nil {
		return nil, err
	}

	for _, step := range []struct{ situation, class string }{{cacheDivided, "batch"}, {lessBandwidth, "slow"}} {
		if err := e.assign(ctx, "critical", critical); err != nil {
			return nil, err
		}
		if err := e.assign(ctx, step.class, noisy...); err != nil {
			return nil, err
		}
		if err := add(step.situation); err != nil {
			return nil, err
		}
	}

	return scene, nil
}

// container is a running container of an experiment.
type container struct {
	podUID string
	lines  *lines // printed by the container
}

// start runs a container on a CPU. The parameter `work` is "chase" or "stream".
func (e *experiment) start(ctx context.Context, name, work string, cpu, size int) (*container, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}

	c := &container{lines: &lines{}}
	e.machine.Command = func() *exec.Cmd {
		cmd := exec.Command(program, work, strconv.Itoa(cpu), strconv.Itoa(size))
		cmd.Stdout, cmd.Stderr = c.lines, os.Stderr
		return cmd
	}

	pod, err := e.Runtime.RunPod(ctx, nriruntime.PodConfig{Name: name})
	if err != nil {
		return nil, err
	}

	e.pods = append(e.pods, pod)
	id, err := e.Runtime.CreateContainer(ctx, pod, nriruntime.ContainerConfig{Name: "main"})
	if err != nil {
		return nil, err
	}

	if err := e.Runtime.StartContainer(ctx, id); err != nil {
		return nil, err
	}

	c.podUID, err = e.uidOf(ctx, name)
	return c, err
}

func (e *experiment) uidOf(ctx context.Context, pod string) (string, error) {
	list, err := e.API.ListAssignments(ctx, &qosv1alpha1.ListAssignmentsRequest{})
	if err != nil {
		return "", err
	}
	for _, p := range list.GetPods() {
		if p.GetName() == pod {
			return p.GetUid(), nil
		}
	}
	return "", fmt.Errorf("the plugin does not report pod %s", pod)
}

// assign changes the class of containers.
func (e *experiment) assign(ctx context.Context, class string, containers ...*container) error {
	for _, c := range containers {
		_, err := e.API.UpdateContainerQOSResources(ctx, &qosv1alpha1.UpdateContainerQOSResourcesRequest{
			PodUid: c.podUID, Container: "main",
			QosResources: []*qosv1alpha1.ContainerQOSResource{{Name: "k8s.io/rdt", Class: class}},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// values returns the percentiles of the critical container's memory access times, and the total memory bandwidth of its neighbours
// in GB/s.
func (e *experiment) values(ctx context.Context, critical *container, noisy []*container) ([]float64, error) {
	all := append([]*container{critical}, noisy...)
	for _, c := range all {
		c.lines.reset()
	}

	// The wait is two seconds longer than the duration, because the first line partly covers the time before the
	// change, and the caches have to fill. On a busy or emulated CPU, a container may need many seconds for a line.
	wait := e.duration + 2*time.Second
	pause.For(ctx, wait)
	limit, cancel := context.WithTimeout(ctx, patience*wait)
	defer cancel()
	var medians [][]float64
	for _, c := range all {
		for !c.lines.enough() && limit.Err() == nil {
			pause.For(limit, 100*time.Millisecond)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		m, err := c.lines.medians()
		if err != nil {
			return nil, err
		}
		medians = append(medians, m)
	}

	moved := 0.0
	for _, m := range medians[1:] {
		moved += m[0] / 1e9
	}

	return append(medians[0], moved), nil
}

func (e *experiment) removePods(ctx context.Context) error {
	var errs []error
	for _, pod := range e.pods {
		errs = append(errs, e.Runtime.RemovePod(context.WithoutCancel(ctx), pod))
	}
	return errors.Join(errs...)
}

// lines collects the numbers that a container prints, in one line each second.
type lines struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Write implements io.Writer.
func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, data...)
	return len(data), nil
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = nil
}

// enough reports whether there are lines for medians.
func (l *lines) enough() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.text, []byte("\n")) > 1
}

// medians returns the median of each column, without the first line.
func (l *lines) medians() ([]float64, error) {
	l.mu.Lock()
	text := bytes.TrimSpace(l.text)
	l.mu.Unlock()
	var columns [][]float64
	for i, line := range strings.Split(string(text), "\n") {
		if i == 0 {
			continue
		}
		for column, field := range strings.Fields(line) {
			value, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return nil, fmt.Errorf("a container printed %q: %w", line, err)
			}
			if column == len(columns) {
				columns = append(columns, nil)
			}
			columns[column] = append(columns[column], value)
		}
	}

	if len(columns) == 0 {
		return nil, fmt.Errorf("a container printed nothing in time, only %q: the CPUs are too busy; measure for longer", text)
	}

	var medians []float64
	for _, values := range columns {
		slices.Sort(values)
		medians = append(medians, values[len(values)/2])
	}

	return medians, nil
}
