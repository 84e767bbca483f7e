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

// TestNode runs all cases after one boot, because the machine is slow: containerd and each pod take long to start. The
// cases share one pod, whose annotations request classes for its containers by name. Each case removes its containers.
func TestNode(t *testing.T) {
	n := startNode(t)
	early := n.runPod(t, "early", map[string]string{keyOf("main"): "rdt=silver"})
	t.Run("the runtime alone runs a container and execs into it", func(t *testing.T) { runsContainers(t, early) })

	writeClassFile(t, classFile)
	theirs := beforePlugin(t, n)
	n.startPlugin(t)
	t.Cleanup(func() { n.plugin.end(t, syscall.SIGTERM) })
	if theirs == nil { // QOS_UNMOUNTED is set, so beforePlugin has left the mount of resctrl to the plugin
		t.Run("resctrl was mounted by the plugin", mountedByPlugin)
		theirs = makeForeignGroups(t)
	}

	t.Run("the versions of the runtime and of its NRI are reported", func(t *testing.T) { reportsVersions(t, n) })
	t.Run("a pod that ran before the plugin is reported in its class in the kernel", func(t *testing.T) { ranBefore(t, n, early) })
	early.remove(t)
	n.foreign = foreignNow(t)
	t.Run("the kernel has the schemata of the class file", func(t *testing.T) { schemata(t, n) })
	if n.machine() == intelV2 {
		t.Run("the demo refuses a machine on which a plugin has classes", refusedDemo)
	}

	t.Run("a class of pod scope is on the pod's cgroup", func(t *testing.T) { podScope(t, n) })
	if n.machine() == intelV2 {
		t.Run("classes that another program enforces are assigned in both scopes", func(t *testing.T) { externalClasses(t, n) })
		t.Run("a rule matches containers by the digest of their image", func(t *testing.T) { imageRules(t, n) })
	}
	if n.machine()&(intelV2|crioIntel) != 0 {
		t.Run("the properties of processes and cgroups that a class sets", func(t *testing.T) { linuxClasses(t, n) })
		t.Run("an idle pod gets its CPU weight back when it leaves the class", func(t *testing.T) { idlePods(t, n) })
		t.Run("the stories of the documentation", func(t *testing.T) { storiesOfThePage(t, n) })
		t.Run("a class without swap leaves the swap of the kubelet", func(t *testing.T) { swapOfKubelet(t, n) })
		t.Run("a container above memory.high without swap is reported as stuck", func(t *testing.T) { stallingMemory(t, n) })
	}
	if n.machine() == crioIntel {
		t.Run("memory is reclaimed from the containers that no class protects", func(t *testing.T) { reclaimed(t, n) })
	}
	if n.machine()&eachRuntime != 0 {
		t.Run("the values of the class are always in the cgroup", func(t *testing.T) { alwaysInClass(t, n) })
	}

	if n.machine()&(intelV2|amdV2) != 0 {
		t.Run("a container without a class is monitored as soon as there is an RMID for it", func(t *testing.T) { shortOfRMIDs(t, n) })
	}

	p := n.runPod(t, "shared", requests())
	// As in Kubernetes, the pod always has a container: a restarted plugin finds CRI-O's pods by their containers.
	p.run(t, spec{name: "resident"})
	for _, c := range nodeCases() {
		c.run(t, p)
	}

	if hasCrun() {
		t.Run("crun", func(t *testing.T) { runByCrun(t, n) })
	}

	t.Run("foreign resctrl groups are unchanged", func(t *testing.T) {
		if diff := cmp.Diff(theirs, readForeign(t)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})

	for _, c := range lastCases() {
		c.run(t, p)
	}
}

// nodeCase is a case, with the machines on which it runs.
type nodeCase struct {
	name string
	test func(*testing.T, *pod)
	on   machines
}

// nodeCases returns the cases that share one pod. A case takes up to a minute. Therefore a case that does not depend on
// the CPU, the cgroup version or the runtime runs on one machine only.
func nodeCases() []nodeCase {
	return []nodeCase{
		{name: "containers and processes exec'd into them are in their groups", test: groups, on: byRunc},
		{name: "throttles are in place before the first instruction and hold", test: throttles, on: byRunc},
		{name: "rootfs and ephemeral are the disks of the runtime and of the kubelet", test: aliases, on: intelV2},
		{name: "volumes have the limits of their classes, from the start of a container until its end", test: volumes, on: intelV2 | crioIntel},
		{name: "volumes on each filesystem and of mode Block have their limits", test: filesystems, on: intelV2},
		{name: "weights are in the kernel, and the status reports whether a disk applies them", test: weights, on: containerd | crioIntel},
		{name: "a latency is in the kernel from the first instruction until the class is left", test: latency, on: intelV2},
		{name: "calibrate-io measures a disk, and a class file gives the result to the kernel", test: calibrates, on: older}, // refuses a disk that a busy host makes slow
		{name: "the reported usage of classes is that of the kernel's counters", test: usage, on: containerd},
		{name: "a limit that holds and a limit that another program removes have different verdicts", test: heldLimits, on: intelV2},
		{name: "a monitored container is measured by itself", test: monitored, on: intelV2 | amdV2},
		{name: "an unknown class or resource is refused with a list of the existing ones", test: unknownClass, on: eachRuntime},
		{name: "a full class is refused until a slot is free", test: fullClass, on: eachRuntime},
		{name: "a restarted container gets the slot of its predecessor", test: restartedContainer, on: intelV2 | crioIntel},
		{name: "an update moves all processes of a container or none", test: changedClass, on: byRunc},
		{name: "processes that are exec'd after an update are moved into the new class", test: laterProcesses, on: intelV1},
		{name: "classes survive a resize of the container", test: resizes, on: intelV2 | intelV1 | crioIntel},
		{name: "the class of a pod is changed", test: podChanges, on: amdV2 | crioIntel},
		{name: "a container that forks continuously is moved as a whole or not at all", test: forks, on: intelV1},
		{name: "a valid change of the class file reaches running containers", test: changedFiles, on: containerd | crioIntel},
		{name: "a class that is removed drains, and comes back", test: removedClass, on: amdV2},
		{name: "changes of other programs to resctrl groups are corrected", test: damagedGroups, on: intelV2},
		{name: "the CPUs of a cache go offline and online", test: cpusComeAndGo, on: intelV1},
		{name: "disks are removed and added while containers run", test: disksComeAndGo, on: intelV2 | intelV1},
		{name: "a container whose class cannot be enforced does not start", test: startsOutside, on: crioIntel},
		{name: "a container that was moved out of its group starts in its group", test: movedBeforeStart, on: crioIntel},
		{name: "containers that were created while the plugin did not run start in their classes", test: createdWithoutPlugin, on: crioIntel},
		{name: "a creation that the OCI runtime refuses leaves its slot free", test: refusedByOCIRuntime, on: crioIntel},
		{name: "a stopped sandbox takes no slot after a restart of the plugin", test: stoppedSandbox, on: crioIntel},
		{name: "a pod that requires the plugin has no container without it", test: requiredPlugin, on: crioIntel},
		{name: "changes of classes do not hang the runtime", test: changesUnderLoad, on: eachRuntime},
		{name: "restarts of plugin and runtime change no container", test: restarts, on: containerd | crioIntel | older},
		{name: "a creation that the plugin does not answer fails, and later containers are moved into their classes", test: unansweredHook, on: amdV2 | older},
	}
}

// lastCases returns the cases that remove foreign groups. They run after all other cases, and each machine has at most
// one of them.
func lastCases() []nodeCase {
	return []nodeCase{
		{name: "resctrl is unmounted while containers run", test: remounted, on: amdV2},
		{name: "groups and classes are as reported when CRI-O has classes of its own", test: ownClasses, on: crioIntel},
	}
}

// run runs the case if it is for this machine, and checks the invariants after it.
func (c nodeCase) run(t *testing.T, p *pod) {
	n := p.node
	if c.on&n.machine() == 0 {
		return
	}
	t.Run(c.name, func(t *testing.T) {
		c.test(t, p)
		n.holds(t)
	})
}

// machines is a set of machines.
type machines uint

// The machines are named by CPU and cgroup version, or by the runtime if that is not the newest containerd.
const (
	intelV2 machines = 1 << iota
	amdV2
	intelV1
	crioIntel
	crioAMD
	older
	containerd = intelV2 | amdV2 | intelV1
	crio       = crioIntel | crioAMD
	everywhere = containerd | crio | older
	// byRunc has each runtime, CPU and cgroup version. It leaves out crioAMD, where crun runs the cases.
	byRunc = containerd | crioIntel | older
	// eachRuntime has each version of each runtime once.
	eachRuntime = intelV2 | crioIntel | older
)

// machine returns the machine on which the tests run.
func (n *node) machine() machines {
	switch {
	case n.kind.name == "cri-o" && n.amd:
		return crioAMD
	case n.kind.name == "cri-o":
		return crioIntel
	case n.kind.older:
		return older
	case !n.cgroupV2:
		return intelV1
	case n.amd:
		return amdV2
	}
	return intelV2
}

// beforePlugin runs the cases that need no plugin. It mounts resctrl, and returns the content of the foreign groups
// that it makes there. If QOS_UNMOUNTED is set, it leaves the mount to the plugin and returns nil.
func beforePlugin(t *testing.T, n *node) foreign {
	var theirs foreign
	if os.Getenv("QOS_UNMOUNTED") == "" {
		must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, ""))
		theirs = makeForeignGroups(t)
	}
	t.Run("check reports what the plugin would find, and changes nothing", func(t *testing.T) { checksMachine(t, n) })
	if n.machine() == intelV2 {
		t.Run("the demo runs on the machine itself, and leaves nothing behind", realDemo)
	}
	return theirs
}

// requests returns the annotations of the shared pod, which request classes for the containers of the cases by name.
func requests() map[string]string {
	annotations := map[string]string{}
	for container, request := range map[string]string{
		"main": "rdt=gold", "limited": "blockio=throttled", "platinum": "rdt=platinum", "networked": "network=fast",
		"one": "rdt=gold", "two": "rdt=gold", "three": "rdt=gold", "again": "blockio=single", "other": "blockio=single",
		"changed": "rdt=silver,blockio=throttled", "reloaded": "rdt=silver,blockio=slower",
		"kept": "rdt=gold,blockio=throttled", "gone": "rdt=gold", "next": "rdt=gold", "weighed": "blockio=weighted", "quick": "blockio=slower",
	} {
		annotations[keyOf(container)] = request
	}
	return annotations
}

// keyOf returns the annotation key for requests of one container.
func keyOf(container string) string { return "container.qos.noderesource.dev/" + container }

// runsContainers starts a container while the plugin does not run, and execs into the container. The container continues
// to run afterwards.
func runsContainers(t *testing.T, p *pod) {
	// While resctrl is not mounted, the kernel shows no group names in /proc.
	c, err := p.create(t, spec{name: "main", args: []string{"show", "/proc/self/cpu_resctrl_groups"}})
	must(t, err)
	c.start(t)
	if got, want := c.exec(t, "cat", "/proc/self/cpu_resctrl_groups"), "res:\nmon:\n"; got != want {
		t.Errorf("resctrl group of an exec'd process: %q, want %q", got, want)
	}
	if got := c.printed(t); got != "res:\nmon:" {
		t.Errorf("the resctrl group of a container is %q, want none", got)
	}
	if got := len(p.node.processes(t, c.cgroup())); got != 1 {
		t.Errorf("%d processes in the container's cgroup, want 1", got)
	}
}
