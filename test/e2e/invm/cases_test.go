// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"testing"
)

// TestNode runs all cases in one life of containerd, since it takes long to start here. Each removes its pods.
func TestNode(t *testing.T) {
	n := startNode(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *node)
	}{
		{"the runtime alone runs a container and execs into it", runsContainers},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, n) })
	}
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
