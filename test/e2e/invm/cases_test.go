// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"os"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestNode runs all cases in one life of the machine, since it is slow: containerd takes long to start, and so do pods. Cases share
// one pod, whose annotations ask for classes for containers by name; each case removes its containers.
func TestNode(t *testing.T) {
	n := startNode(t)
	early := n.runPod(t, "early", map[string]string{keyOf("main"): "rdt=silver"})
	t.Run("the runtime alone runs a container and execs into it", func(t *testing.T) { runsContainers(t, early) })

	writeClassFile(t, classFile)
	theirs := beforePlugin(t, n)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })
	if theirs == nil {
		t.Run("resctrl was mounted by the plugin", mountedByPlugin)
		theirs = makeForeignGroups(t)
	}
	t.Run("a pod that ran before the plugin is reported in its class in the kernel", func(t *testing.T) { ranBefore(t, n, early) })
	early.remove(t)
	n.foreign = foreignNow(t)
	t.Run("the kernel has the schemata of the class file", func(t *testing.T) { schemata(t, n) })
	t.Run("a class of pod scope is on the pod's cgroup", func(t *testing.T) { podScope(t, n) })

	p := n.runPod(t, "shared", requests())
	// Cases that do not depend on CPU or cgroup version run on one machine, because each takes minutes.
	everywhere, intelV2, intelV1, amdV2 := true, n.cgroupV2 && !n.amd, !n.cgroupV2, n.amd
	for _, c := range []struct {
		name string
		run  func(*testing.T, *pod)
		here bool
	}{
		{"containers and what is exec'd into them are in their groups", groups, everywhere},
		{"throttles are in place before the first instruction and hold", throttles, everywhere},
		{"weights stand in the kernel, and the status says whether a disk acts on them", weights, everywhere},
		{"an unknown class or resource is refused with what there is", unknownClass, everywhere},
		{"a full class is refused until a slot is free", fullClass, everywhere},
		{"a restarted container is not refused against itself", restartedContainer, everywhere},
		{"an update moves all of a container or nothing", changedClass, everywhere},
		{"what is exec'd after an update is brought into the new class", laterProcesses, intelV1},
		{"classes survive a resize of the container", resizes, intelV2 || intelV1},
		{"the class of a pod is changed", podChanges, amdV2},
		{"a container that forks all the time is moved whole or not at all", forks, intelV1},
		{"a change of the class file reaches what runs unless it is wrong", changedFiles, everywhere},
		{"a class that is removed drains, and comes back", removedClass, amdV2},
		{"what others do to resctrl groups is put right", damagedGroups, intelV2},
		{"disks come and go under what runs", disksComeAndGo, intelV2 || intelV1},
		{"restarts leave everything as it was", restarts, everywhere},
	} {
		if c.here {
			t.Run(c.name, func(t *testing.T) { c.run(t, p); n.holds(t) })
		}
	}
	t.Run("foreign resctrl groups are unchanged", func(t *testing.T) {
		if diff := cmp.Diff(theirs, readForeign(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	if amdV2 {
		t.Run("resctrl is unmounted while containers run", func(t *testing.T) { remounted(t, p); n.holds(t) })
	}
}

// beforePlugin runs the cases without the plugin. It mounts resctrl and returns what is foreign in it; with QOS_UNMOUNTED it leaves
// the mount to the plugin, and returns nil.
func beforePlugin(t *testing.T, n *node) foreign {
	var theirs foreign
	if os.Getenv("QOS_UNMOUNTED") == "" {
		must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, ""))
		theirs = makeForeignGroups(t)
	}
	t.Run("check reports what the plugin would find, and changes nothing", func(t *testing.T) { checksMachine(t, n) })
	if n.cgroupV2 && theirs != nil {
		t.Run("the demo runs on the machine itself, and leaves nothing behind", realDemo)
	}
	return theirs
}

// requests are the annotations for the containers of the cases.
func requests() map[string]string {
	annotations := map[string]string{}
	for container, request := range map[string]string{
		"main": "rdt=gold", "limited": "blockio=throttled", "platinum": "rdt=platinum", "networked": "network=fast",
		"one": "rdt=gold", "two": "rdt=gold", "three": "rdt=gold", "again": "blockio=single", "other": "blockio=single",
		"changed": "rdt=silver,blockio=throttled", "reloaded": "rdt=silver,blockio=slower",
		"kept": "rdt=gold,blockio=throttled", "gone": "rdt=gold", "next": "rdt=gold", "weighed": "blockio=weighted",
	} {
		annotations[keyOf(container)] = request
	}
	return annotations
}

// keyOf returns the annotation key for requests of one container.
func keyOf(container string) string { return "container.qos.noderesource.dev/" + container }

// runsContainers leaves the container running.
func runsContainers(t *testing.T, p *pod) {
	// The kernel names no groups as long as resctrl is not mounted.
	c, err := p.create(t, spec{name: "main", args: []string{"show", "/proc/self/cpu_resctrl_groups"}})
	must(t, err)
	c.start(t)
	if got, want := c.exec(t, "cat", "/proc/self/cpu_resctrl_groups"), "res:\nmon:\n"; got != want {
		t.Errorf("resctrl group of an exec'd process: %q, want %q", got, want)
	}
	if got := c.printed(t); got != "res:\nmon:" {
		t.Errorf("resctrl group of the container: %q", got)
	}
	if got := len(p.node.processes(t, c.cgroup())); got != 1 {
		t.Errorf("%d processes in the container's cgroup, want 1", got)
	}
}
