// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"log/slog"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/internal/node/state"
	"github.com/qos-nri/qos-nri-plugin/pkg/cgroup"
	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/pkg/rdt"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	"github.com/qos-nri/qos-nri-plugin/test/sim"
)

// killed is the panic value of a killed process.
type killed struct{}

// killer simulates the kill of a process by a panic. It counts the steps that have an effect outside of the process,
// and panics before the step with the number `at`. If `at` is 0, it does not panic.
type killer struct{ at, steps int }

func (k *killer) step() {
	k.steps++
	if k.steps == k.at {
		panic(killed{})
	}
}

// survives calls a function, and reports whether the function returned without killing the process.
func (k *killer) survives(do func()) (alive bool) {
	defer func() {
		if cause := recover(); cause != nil {
			if _, ours := cause.(killed); !ours {
				panic(cause)
			}
		}
	}()
	do()
	return true
}

// crashHost is a simulated machine whose process may be killed before and after every write.
type crashHost struct {
	*sim.Machine
	killer *killer
}

func (h crashHost) WriteFile(path string, data []byte) error {
	h.killer.step()
	defer h.killer.step()
	return h.Machine.WriteFile(path, data)
}

// machine is a node with a real backend on a simulated machine. The node's process may be killed. The node has one
// container, "c1" of pod "a".
type machine struct {
	*fixture
	host     crashHost
	killer   *killer
	text     string // of the class files
	pod, ctr classes.Holder
}

const machinePath = "/kubepods/poduid-a/c1"

// newMachine returns a machine whose container is not created yet.
func newMachine(t *testing.T, m *sim.Machine, kindOn func(crashHost) classes.Kind, text, request string) *machine {
	t.Helper()
	f := &machine{killer: &killer{}, text: text, pod: pod("a", nil)}
	f.host = crashHost{m, f.killer}
	f.ctr = classes.Holder{ID: "c1", Container: "main", CgroupsPath: machinePath}
	if request != "" {
		f.pod.PodAnnotations = requesting(request)
	}
	f.fixture = newFixtureOf(t, kindOn(f.host))
	return f
}

// create creates the container. The container then has its first process, but is not started.
func (f *machine) create(t *testing.T, pid int) classes.Adjustment {
	t.Helper()
	ctr, adjustment, err := f.fixture.create(t, f.pod, f.ctr)
	if err != nil {
		t.Fatal(err)
	}
	f.ctr = ctr
	f.ctr.PID = pid
	return adjustment
}

func (f *machine) start(t *testing.T) {
	t.Helper()
	if err := f.fixture.start(t, f.pod, f.ctr); err != nil {
		t.Fatal(err)
	}
}

// restart starts a new process with the same class files. The new process is not synchronized yet.
func (f *machine) restart(t *testing.T) {
	t.Helper()
	f.fixture.restart(t)
	f.mustConfigure(t, f.text)
}

// recover restarts the process, synchronizes it and reconciles.
func (f *machine) recover(t *testing.T) {
	t.Helper()
	f.restart(t)
	f.Synchronize([]classes.Holder{f.pod}, []state.Existing{running(f.pod, f.ctr)})
	f.Reconcile(t.Context())
}

// class returns the reported class of the container.
func (f *machine) class(t *testing.T) string {
	t.Helper()
	pods := f.Assignments()
	if len(pods) != 1 || len(pods[0].Containers) != 1 || len(pods[0].Containers[0].Assignments) != 1 {
		t.Fatalf("assignments are %+v", pods)
	}
	return pods[0].Containers[0].Assignments[0].Class
}

// rdtOn returns the kind of resources that resctrl of the host provides.
func rdtOn(t *testing.T, host resctrl.FS) classes.Kind {
	t.Helper()
	return rdt.Kind(rdt.Options{FS: host, Threads: treeOf(t, host), Log: slog.New(slog.DiscardHandler)})
}

func treeOf(t *testing.T, host cgroup.FS) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Detect(host)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
