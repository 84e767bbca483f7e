// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	qos "github.com/qos-nri/qos-nri-plugin/api/qos/v1alpha1"
)

// laterProcesses: the class of a container has changed, but the runtime still puts exec'd processes into the group of
// the old class. The plugin has to move these processes: "workload await" ends only when it is in the new group.
func laterProcesses(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "changed"})
	if got := c.exec(t, "await", "/proc/self/cpu_resctrl_groups", "res:qos-silver"); strings.TrimSpace(got) == "" {
		t.Error("\"workload await\" printed nothing")
	}

	p.update(t, "changed", "rdt=gold")
	for _, after := range []string{"a change", "a restart of the plugin", "a restart of the runtime"} {
		switch after {
		case "a restart of the plugin":
			n.restartPlugin(t)
		case "a restart of the runtime":
			n.stopRuntime(t)
			n.startRuntime(t)
			n.waitRegistered(t)
		}
		timeExecs(t, c, "res:qos-gold", after)
	}

	// A process that ends at once causes no error.
	c.exec(t, "cat", "/proc/self/cpu_resctrl_groups")

	plain := p.run(t, spec{name: "plain"})
	p.update(t, "plain", "rdt=gold")
	timeExecs(t, plain, "res:qos-gold", "a change of a container of the default class")
	plain.remove(t)

	// The runtime writes nothing into resctrl for a container without a class.
	t.Cleanup(func() { writeClassFile(t, classFile) })
	n.setDefault(t, strings.Replace(classFile, "  defaultClass: bronze\n", "", 1), "")
	none := p.run(t, spec{name: "none"})
	if got := none.exec(t, "cat", "/proc/self/cpu_resctrl_groups"); got != "res:/\nmon:\n" {
		t.Errorf("a container without a class is in the groups %q, want the root group", got)
	}
	p.update(t, "none", "rdt=gold")
	timeExecs(t, none, "res:qos-gold", "a change of a container without a class")
	none.remove(t)
	n.setDefault(t, classFile, "bronze")
}

// setDefault applies a class file, and waits until the default RDT class is the given one.
func (n *node) setDefault(t *testing.T, file, class string) {
	t.Helper()
	writeClassFile(t, file)
	eventually(t, "the default class changes", func() error {
		if r := n.resource(t, rdt); r == nil || r.GetDefaultClass() != class {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// timeExecs executes 20 processes in a container whose class was changed, and logs the time that each process spent in
// another group.
func timeExecs(t *testing.T, c *container, group, after string) {
	t.Helper()
	var times []int
	for range 20 {
		took, err := strconv.Atoi(strings.TrimSpace(c.exec(t, "await", "/proc/self/cpu_resctrl_groups", group)))
		must(t, err)
		times = append(times, took)
	}
	slices.Sort(times)
	t.Logf("after %s, exec'd processes were in the new class after %d ms (p50), %d ms (p95), %d ms (at most); all: %v",
		after, times[len(times)/2], times[len(times)*95/100-1], times[len(times)-1], times)
}

// resizes: when the kubelet resizes a container in place, the runtime also writes the other values that it has stored
// for the container. The container must still have the limits of its current class.
func resizes(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "changed"})
	resize := func(shares int64) { c.resize(t, &cri.LinuxContainerResources{CpuShares: shares}) }
	resize(512)
	c.wantGroup(t, "qos-silver")
	wantLimits(t, n.limits(t, c.cgroup()), throttled(t))
	p.update(t, "changed", "rdt=gold,blockio=slower")
	slower := ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "700000"}}
	for i, before := range []func(){func() {}, func() { n.restartPlugin(t) }} {
		before()
		resize(int64(300 + i))
		c.wantGroup(t, "qos-gold")
		wantLimits(t, n.limits(t, c.cgroup()), slower)
	}

	p.update(t, "changed", "blockio=")
	resize(1024)
	wantLimits(t, n.limits(t, c.cgroup()), ioLimits{})
}

// forks changes the class of a container that does nothing but fork.
func forks(t *testing.T, p *pod) {
	c := p.run(t, spec{name: "changed", args: []string{"forks", "4", "600"}}) // four processes fork for 600 s
	t.Run("a container without a monitoring group is moved thread by thread", func(t *testing.T) { movesForks(t, c) })
	t.Run("a container with a monitoring group is moved by a rename of the group", func(t *testing.T) { renamesForks(t, c) })
}

// movesForks: the container is moved as a whole, or not at all.
func movesForks(t *testing.T, c *container) {
	n, p := c.pod.node, c.pod
	for _, class := range []string{"gold", "silver", "gold"} {
		_, err := output("qos-nri-plugin", "update", p.name(), "changed", "rdt="+class)
		t.Logf("update to %s: %v", class, err)
		if err != nil && !strings.Contains(err.Error(), "new threads kept appearing outside the group qos-"+class) {
			t.Errorf("update: %v", err)
		}
		want := n.assignment(t, p, "changed", rdt).GetClass()
		if err == nil && want != class {
			t.Errorf("after a change to %[2]q, the container is reported in class %[1]q", want, class)
		}
		eventually(t, "all threads are in the reported class", func() error { return c.inGroup(groupOf(want)) })
	}
}

// renamesForks: the container has a monitoring group, and the plugin moves this group. When a process forks, the kernel
// copies its CLOSID before it lists the new process. So a process that is forked during the rename can stay in the old
// group until the plugin moves it.
func renamesForks(t *testing.T, c *container) {
	monitor(t, c.pod.node, "gold, silver")
	c.pod.update(t, "changed", "rdt=silver")
	m := &meter{container: c, name: "changed"}
	m.await(t, "silver", "the container is measured")
	before := inode(t, m.group("silver"))
	for _, class := range []string{"gold", "silver"} {
		c.pod.update(t, "changed", "rdt="+class)
		eventually(t, "all threads are in the new class", func() error { return c.inGroup(groupOf(class)) })
		if after := inode(t, m.group(class)); after != before {
			t.Errorf("the monitoring group has inode %d, want %d: it was created again", after, before)
		}
		m.await(t, class, "the container is measured in its new class")
	}
}

// inode returns the inode number of a directory, which stays the same when the directory is moved.
func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var stat syscall.Stat_t
	must(t, syscall.Stat(path, &stat))
	return stat.Ino
}

// podChanges: classes of pods can be changed like those of containers.
func podChanges(t *testing.T, shared *pod) {
	n := shared.node
	p := n.runPod(t, "changing", map[string]string{podKey: podBlockio + "=slow"})
	c := p.run(t, spec{name: "main"})
	p.update(t, podBlockio+"=slower")
	slower := ioLimits{deviceNumber(t, "/dev/vda"): {"rbps": "600000"}}
	wantLimits(t, n.limits(t, p.cgroup()), slower)
	wantLimits(t, n.limits(t, c.cgroup()), ioLimits{})
	n.restartPlugin(t)
	n.wantAssignment(t, p, "", &qos.Assignment{Name: podBlockio, Class: "slower", Source: qos.Source_SOURCE_UPDATE})
	wantLimits(t, n.limits(t, p.cgroup()), slower)
	_, err := output("qos-nri-plugin", "update", p.name(), podBlockio+"=none")
	if err == nil || !strings.Contains(err.Error(), `class "none" of qos.noderesource.dev/pod-blockio`) {
		t.Errorf("an update to an unknown class returned %v, want an error that names the class", err)
	}

	wantLimits(t, n.limits(t, p.cgroup()), slower)
	p.update(t, podBlockio+"=")
	wantLimits(t, n.limits(t, p.cgroup()), ioLimits{})
}

// removedClass: a removed class drains, a restarted container keeps it, and its group is removed when its last pod has ended.
func removedClass(t *testing.T, shared *pod) {
	n := shared.node
	p := n.runPod(t, "removed", map[string]string{keyOf("main"): "rdt=gold", keyOf("one"): "rdt=gold"})
	c := p.run(t, spec{name: "main"})
	before := schemataLines(t, "qos-gold")
	// In this class file, the class `other` has the place of gold.
	useClassFile(t, strings.NewReplacer("{name: gold, capacity: 2}, ", "", "classes: {gold: {l3Allocation: \"100%\", mbAllocation: [\"100%\"]}}",
		"classes: {other: {l3Allocation: \"100%\", mbAllocation: [\"100%\"]}}", "{name: bronze}]", "{name: bronze}, {name: other}]").Replace(classFile))
	eventually(t, "the class drains", func() error {
		if class := n.class(t, rdt, "gold"); !class.GetDraining() {
			return fmt.Errorf("%v", class)
		}
		return nil
	})

	c.wantGroup(t, "qos-gold")
	if diff := cmp.Diff(before, schemataLines(t, "qos-gold")); diff != "" {
		t.Errorf("schemata of the draining class (-before +after):\n%s", diff)
	}

	_, err := p.create(t, spec{name: "one"})
	if err == nil || !strings.Contains(err.Error(), `class "gold"`) {
		t.Errorf("the creation of a container in a draining class returned %v, want an error that names the class", err)
	}

	n.holds(t)
	c.remove(t)
	p.run(t, spec{name: "main", attempt: 1}).wantGroup(t, "qos-gold")
	n.holds(t)
	p.remove(t)
	eventually(t, "the group of the class is gone", func() error { return emptyAndGone("qos-gold") })
	writeClassFile(t, classFile)
	eventually(t, "the class exists again", func() error {
		if gone(resctrlRoot+"/qos-gold") == nil || n.status(t).GetConfig().GetLastError() != "" {
			return fmt.Errorf("not yet: %s", n.status(t).GetConfig().GetLastError())
		}
		return nil
	})
}
