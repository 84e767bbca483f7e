// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime/hostdir"
)

// barePlugin is an idle plugin that only makes system calls at each start of a container with a class.
type barePlugin struct {
	idlePlugin
	startCalls
}

// startCalls are the system calls of the plugin's hook StartContainer. The paths are relative to the container's cgroup.
type startCalls struct {
	// Tree is the mount point of the cgroups.
	Tree  string
	Calls []fileCall
}

func readBarePlugin(file string) (*barePlugin, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var p barePlugin
	return &p, json.Unmarshal(data, &p.startCalls)
}

// StartContainer makes the system calls.
func (p *barePlugin) StartContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) error {
	if pod.GetAnnotations()[requestKey] == "" {
		return nil
	}
	cgroup := filepath.Join(p.Tree, nriruntime.CgroupDir(c.GetLinux().GetCgroupsPath()))
	calls := make([]fileCall, len(p.Calls))
	for i, call := range p.Calls {
		calls[i] = fileCall{Path: cgroup + "/" + call.Path, Data: call.Data}
	}
	return repeat(calls)
}

// write writes the calls into a file. Their tree is below the directory `root`.
func (s startCalls) write(file, root string) error {
	data, err := json.Marshal(startCalls{Tree: filepath.Join(root, s.Tree), Calls: s.Calls})
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// counts returns how many files are read, and how many are written.
func (s startCalls) counts() (reads, writes int) {
	for _, call := range s.Calls {
		if call.Data == nil {
			reads++
		} else {
			writes++
		}
	}
	return reads, writes
}

// hookCosts are the costs of the node in its hooks, without NRI.
type hookCosts struct {
	// start has the system calls of StartContainer for a container with a class. The paths are relative to its cgroup.
	start startCalls
	// `createNothing`, `createClass` and `startClass` are numbers of allocated objects.
	createNothing, createClass, startClass float64
}

// costsOfHooks runs the hooks in this process, on a machine with cgroup v1 or v2.
func costsOfHooks(ctx context.Context, dir string, legacy bool) (costs hookCosts, err error) {
	l, err := newLocal(ctx, dir, legacy, classFile)
	if err != nil {
		return costs, err
	}

	nothing := classes.Holder{
		ID: "c0", PodUID: "pod0", PodNamespace: "production", PodName: "web-0", Container: "main",
		CgroupsPath: "/kubepods/pod0/c0", PodCgroupsPath: "/kubepods/pod0", PID: 1000,
	}

	asked := classes.Holder{
		ID: "c1", PodUID: "pod1", PodNamespace: "production", PodName: "web-1", Container: "main", PodAnnotations: pod(1, requests()[1]).Annotations,
		CgroupsPath: "/kubepods/pod1/c1", PodCgroupsPath: "/kubepods/pod1", PID: 1001,
	}

	create := func(h classes.Holder) func() {
		return func() {
			_, _, createErr := l.CreateContainer(h)
			l.Stop(h.ID)
			err = cmp.Or(err, createErr)
		}
	}

	costs.createNothing = testing.AllocsPerRun(100, create(nothing))
	costs.createClass = testing.AllocsPerRun(100, create(asked))

	adjustment, _, createErr := l.CreateContainer(asked)
	_, machineErr := l.machine.Create(ctx, nriruntime.Spec{ID: asked.ID, CgroupsPath: asked.CgroupsPath, Unified: adjustment.Unified()})
	start := func() {
		enforce, startErr := l.StartContainer(asked)
		if startErr == nil {
			startErr = enforce(ctx)
		}
		err = cmp.Or(err, startErr)
	}

	calls := l.files.recordDuring(start)
	costs.startClass = testing.AllocsPerRun(100, start)
	if err := cmp.Or(err, createErr, machineErr); err != nil {
		return costs, err
	}

	costs.start, err = startCallsOf(calls, l.machine, asked.CgroupsPath)
	return costs, err
}

// startCallsOf makes the paths of calls relative to the container's cgroup.
func startCallsOf(calls []fileCall, machine *hostdir.Host, cgroup string) (s startCalls, err error) {
	s.Tree = machine.Tree()
	for _, call := range calls {
		if slices.Contains(hostdir.UsageFiles(), filepath.Base(call.Path)) {
			continue // the plugin reads usage files outside of the hook
		}
		file, below := strings.CutPrefix(call.Path, filepath.Join(machine.Root, s.Tree, cgroup)+"/")
		if !below {
			return s, fmt.Errorf("the hook uses %s, which is not in the container's cgroup", call.Path)
		}
		s.Calls = append(s.Calls, fileCall{file, call.Data})
	}
	return s, nil
}
