// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNode runs all cases in one life of the machine, since containerd takes long to start here. Each case removes its pods.
func TestNode(t *testing.T) {
	n := startNode(t)
	n.run(t, "the runtime alone runs a container and execs into it", runsContainers)

	early := n.runPod(t, "early", map[string]string{ownKey: "rdt=silver"})
	early.run(t, spec{name: "main"})
	theirs := makeForeignGroups(t)
	writeClassFile(t, classFile)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })
	t.Run("what ran before the plugin is reported as the kernel has it", func(t *testing.T) { ranBefore(t, n, early) })
	early.remove(t)

	n.run(t, "the kernel has the schemata of the class file", schemata)
	n.run(t, "containers and what is exec'd into them are in their groups", groups)
	n.run(t, "throttles are in place before the first instruction", limitsBeforeFirstInstruction)
	n.run(t, "direct I/O on two disks is as fast as its class says", throughput)
	n.run(t, "a class of pod scope is on the pod's cgroup", podScope)
	n.run(t, "an unknown class or resource is refused with what there is", unknownClass)
	n.run(t, "a full class is refused until a slot is free", fullClass)
	n.run(t, "a restarted container is not refused against itself", restartedContainer)
	n.run(t, "an update moves all of a container or nothing", changedClass)
	n.run(t, "a change of the class file reaches what runs unless it is wrong", changedFiles)
	n.run(t, "a killed plugin comes back with the same state", pluginRestart)
	n.run(t, "a restarted runtime gets the same state", runtimeRestart)
	n.run(t, "running containers keep their classes when the plugin ends", pluginEnd)
	t.Run("resctrl groups of others are as they were", func(t *testing.T) {
		if diff := cmp.Diff(theirs, readForeign(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
}

// run is t.Run for a case with the node.
func (n *node) run(t *testing.T, name string, test func(*testing.T, *node)) {
	t.Run(name, func(t *testing.T) { test(t, n) })
}

func runsContainers(t *testing.T, n *node) {
	p := n.runPod(t, "plain", nil)
	// The kernel names no groups as long as resctrl is not mounted.
	c := p.run(t, spec{name: "main", args: []string{"show", "/proc/self/cpu_resctrl_groups"}})
	if got, want := c.exec(t, "cat", "/proc/self/cpu_resctrl_groups"), "res:\nmon:\n"; got != want {
		t.Errorf("resctrl group of an exec'd process: %q, want %q", got, want)
	}
	if got := c.printed(t); got != "res:\nmon:" {
		t.Errorf("resctrl group of the container: %q", got)
	}
	if got := len(n.processes(t, c.cgroup())); got != 1 {
		t.Errorf("%d processes in the container's cgroup, want 1", got)
	}
}
