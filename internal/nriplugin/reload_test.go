// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package nriplugin_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nodetest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

const (
	groups = "k8s.io/rdt"
	disks  = "k8s.io/blockio"
)

// changed returns the class files of machineFiles with replaced texts. The arguments are pairs of old and new text.
func changed(texts ...string) string { return strings.NewReplacer(texts...).Replace(machineFiles) }

// without returns the class files of machineFiles without one resource.
func without(t *testing.T, resource string) string {
	t.Helper()
	before, rest, found := strings.Cut(machineFiles, "- name: "+resource+"\n")
	if !found {
		t.Fatalf("no resource %s", resource)
	}
	if _, after, more := strings.Cut(rest, "\n- name: "); more {
		return before + "- name: " + after
	}
	return before
}

// populated is a rig with a container in each class, and one without a request.
type populated struct {
	*machineRig
	gold, slow, plain string
}

func newPopulated(t *testing.T) *populated {
	t.Helper()
	r := newMachineRig(t, simcgroup.New())
	p := &populated{machineRig: r}
	p.gold = r.mustRun(t, r.pod(t, "gold", "rdt=gold,blockio=fast"))
	p.slow = r.mustRun(t, r.pod(t, "slow", "rdt=silver,blockio=slow"))
	p.plain = r.mustRun(t, r.pod(t, "plain", ""))
	r.world.Hold(t)
	return p
}

func (p *populated) schemata(t *testing.T, class string) string {
	t.Helper()
	data, err := p.host.ReadFile(resctrl.MountPoint + "/qos-" + class + "/schemata")
	must(t, err)
	return string(data)
}

func TestRunningContainersGetChangedMasksAndRates(t *testing.T) {
	p := newPopulated(t)
	p.mustConfigure(t, changed(`exclusive: {l3Allocation: "50%"`, `exclusive: {l3Allocation: "75%"`, `shared: {l3Allocation: "50%"`, `shared: {l3Allocation: "25%"`,
		"ThrottleReadBps: 1M", "ThrottleReadBps: 2M"))
	p.world.Expect.Limits[disks]["slow"] = map[string]string{"io.max": "254:0 rbps=2000000\n254:16 rbps=2000000"}
	// of the 12 bits of each L3 cache, 75% are the lower nine, and 25% the upper three
	p.world.Expect.Schemata = map[string]string{"gold": "L3:0=1ff;1=1ff", "bronze": "L3:0=e00;1=e00"}
	p.world.Hold(t)
	c := p.container(t, p.slow)
	if got := c.Spec.Unified["io.max"]; !strings.Contains(got, "rbps=2000000") {
		t.Errorf("the runtime stores io.max %q, want rbps=2000000", got)
	}
}

func TestContainersWithTheDefaultClassGetTheNewDefault(t *testing.T) {
	p := newPopulated(t)
	p.mustConfigure(t, changed("defaultClass: bronze", "defaultClass: silver"))
	p.world.Hold(t)
	p.wantReported(t, p.plain, groups, "silver/default")
	p.wantReported(t, p.slow, groups, "silver/pod")
	p.mustConfigure(t, changed("  defaultClass: bronze\n", ""))
	p.world.Hold(t)
	p.wantReported(t, p.plain, groups, "/")
}

// TestContainersKeepAClassWhoseCapacityIsLoweredBelowItsUse: two containers have the class when its capacity becomes 1.
// No other container gets it before both have ended.
func TestContainersKeepAClassWhoseCapacityIsLoweredBelowItsUse(t *testing.T) {
	p := newPopulated(t)
	second := p.mustRun(t, p.pod(t, "second", "rdt=gold"))
	p.mustConfigure(t, changed("{name: gold, capacity: 2}", "{name: gold, capacity: 1}"))
	p.world.Expect.Most = map[invariant.Class]uint64{{Resource: groups, Name: "gold"}: 2}
	p.world.Hold(t)
	for _, id := range []string{p.gold, second} {
		p.wantReported(t, id, groups, "gold/pod")
	}

	wantFull := func() {
		t.Helper()
		if _, err := p.run(t, p.pod(t, "late", "rdt=gold")); err == nil || !strings.Contains(err.Error(), "is full") {
			t.Errorf("error is %v, want that the class is full", err)
		}
		if err := p.update(t, p.plain, "rdt", "gold"); !errors.Is(err, classes.ErrClassFull) {
			t.Errorf("an update returned %v, want that the class is full", err)
		}
	}
	wantFull()
	p.mustStop(t, second)
	wantFull() // the first container still has the only slot

	p.world.Expect.Most = nil
	p.mustStop(t, p.gold)
	p.mustRun(t, p.pod(t, "next", "rdt=gold"))
	p.world.Hold(t)
}

// TestARemovedClassDrainsWithItsThreads removes a class, renames two classes, removes a resource, and removes all resources.
func TestARemovedClassDrainsWithItsThreads(t *testing.T) {
	for _, test := range []struct {
		name string
		text func(t *testing.T) string
		// offered is the new name of a renamed class. It is empty if no class is renamed.
		offered string
		// defaultRemoved is true if the default class, bronze, is removed, too. Its group then ends at once, because its only holder,
		// container plain, has not requested a class.
		defaultRemoved bool
	}{
		{name: "a class that is removed", text: func(*testing.T) string { return withoutGold() }},
		{
			name: "a class that has another name", offered: "platinum",
			text: func(*testing.T) string { return changed("gold", "platinum", "fast", "quick") },
		},
		{name: "a resource that is removed", defaultRemoved: true, text: func(t *testing.T) string { return without(t, groups) }},
		{name: "all resources are removed", defaultRemoved: true, text: func(*testing.T) string {
			return "apiVersion: qos.noderesource.dev/v1alpha1\nkind: QOSClassConfig\nresources: []\n"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPopulated(t)
			p.mustConfigure(t, test.text(t))
			p.world.Expect.Limits = nil // draining classes still have values, but no class file has these values any more
			p.mustRelease(t)
			p.world.Hold(t)
			p.wantReported(t, p.gold, groups, "gold/pod")
			if got := p.host.exists(resctrl.MountPoint + "/qos-bronze"); got == test.defaultRemoved {
				t.Errorf("the group of the former default class exists: %t", got)
			}

			if got := len(p.host.tasks(t, "qos-gold")); got == 0 {
				t.Error("the group qos-gold has no threads, want those of its container")
			}

			if _, err := p.run(t, p.pod(t, "late", "rdt=gold")); err == nil {
				t.Error("a new container got the class")
			}

			if test.offered != "" {
				p.mustRun(t, p.pod(t, "new", "rdt="+test.offered))
			}

			// with its last holder, a removed class ends
			for _, id := range []string{p.gold, p.slow, p.plain} {
				must(t, p.StopPod(t.Context(), p.podOf(t, id)))
			}
			<-p.node.Drained()
			p.mustRelease(t)
			if got := nodetest.Draining(p.node.Store); got != 0 {
				t.Errorf("%d assignments drain, although no container runs", got)
			}

			p.world.Hold(t)
			if p.host.exists(resctrl.MountPoint + "/qos-gold") {
				t.Error("the group still exists")
			}

			// class files can offer the class again
			p.mustConfigure(t, machineFiles)
			p.mustRun(t, p.pod(t, "again", "rdt=gold,blockio=fast"))
			p.world.Hold(t)
		})
	}
}

// mustRelease releases removed classes that are not in use.
func (p *populated) mustRelease(t *testing.T) {
	t.Helper()
	if err := p.node.ReleaseUnused(t.Context()); err != nil {
		t.Error(err)
	}
}

func (h host) exists(dir string) bool {
	_, err := h.ReadDir(dir)
	return err == nil
}

// tasks returns the threads of a group.
func (h host) tasks(t *testing.T, group string) []string {
	t.Helper()
	data, err := h.ReadFile(resctrl.MountPoint + "/" + group + "/tasks")
	must(t, err)
	return strings.Fields(string(data))
}

// TestAReloadThatFailsHalfWayChangesNothingForRunningContainers runs the same reload several times. In each run,
// another operation of the reload fails, until none is left and the reload succeeds.
func TestAReloadThatFailsHalfWayChangesNothingForRunningContainers(t *testing.T) {
	next := changed("gold", "platinum", `shared: {l3Allocation: "50%"`, `shared: {l3Allocation: "25%"`, "defaultClass: bronze", "defaultClass: silver")
	for _, fault := range []struct {
		op    string
		errno syscall.Errno
		least int // the minimum number of such operations
	}{
		{"write", syscall.EINVAL, 3}, {"write", syscall.EROFS, 3}, {"mkdir", syscall.ENOSPC, 1}, {"mkdir", syscall.EBUSY, 1}, {"mkdir", syscall.EROFS, 1},
	} {
		t.Run(fault.op+" "+fault.errno.Error(), func(t *testing.T) {
			p := newPopulated(t)
			p.world.Expect.Schemata = map[string]string{"gold": p.line(t, "gold"), "silver": p.line(t, "silver"), "bronze": p.line(t, "bronze")}
			n := 0
			for ; p.unchangedByFailureAt(t, n, fault.op, fault.errno, next); n++ {
			}
			if n < fault.least {
				t.Errorf("only %d operations could be made to fail", n)
			}
			p.world.Expect = invariant.Expect{}
			p.world.Hold(t)
			p.wantReported(t, p.plain, groups, "silver/default")
		})
	}
}

// line returns the schemata line of a class's group for the last-level cache.
func (p *populated) line(t *testing.T, class string) string {
	t.Helper()
	for line := range strings.Lines(p.schemata(t, class)) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "L3:") {
			return trimmed
		}
	}
	t.Fatalf("class %s has no L3", class)
	return ""
}

// unchangedByFailureAt loads class files. It makes one operation of the given kind fail, after `n` operations of this kind have
// succeeded, and then checks that the previous class files are still in force. It returns false if no operation failed.
func (p *populated) unchangedByFailureAt(t *testing.T, n int, op string, errno syscall.Errno, text string) bool {
	t.Helper()
	left, failed := n, false
	p.host.intercept(func(done, path string) error {
		if done != op || failed || done == "write" && !strings.HasSuffix(path, "/schemata") {
			return nil
		}
		if left--; left >= 0 {
			return nil
		}
		failed = true
		return errno
	})

	err := p.configure(t, text)
	p.host.heal()
	if !failed {
		if err != nil {
			t.Error(err)
		}
		return false
	}
	if !errors.Is(err, errno) || strings.Contains(err.Error(), "rolling back failed") {
		t.Errorf("%s %d: error is %v", op, n, err)
	}

	if status := p.node.Status(); status.Config.Err == nil || status.Config.Generation != 1 {
		t.Errorf("%s %d: the status has the error %v and generation %d", op, n, status.Config.Err, status.Config.Generation)
	}

	p.world.Hold(t)
	p.mustStop(t, p.mustRun(t, p.pod(t, "new", "rdt=gold"))) // a class of the previous files
	if _, err := p.run(t, p.pod(t, "wrong", "rdt=platinum")); err == nil {
		t.Error("a class of the refused files was assigned")
	}

	return true
}

func TestAContainerThatCannotBeMovedIsReportedInItsObservedClass(t *testing.T) {
	p := newPopulated(t)
	p.host.fail("/qos-silver/tasks", syscall.EPERM)

	p.mustConfigure(t, changed("defaultClass: bronze", "defaultClass: silver"))
	p.world.Hold(t)
	p.wantReported(t, p.plain, groups, "bronze/adopted")
	p.host.heal()
	p.node.Reconcile(t.Context())
	p.world.Hold(t)
	p.wantReported(t, p.plain, groups, "silver/default")
}

func TestWithCgroupV2OnlyTheRuntimeWritesChangedLimits(t *testing.T) {
	r := newMachineRig(t, simcgroup.New())
	id := r.mustRun(t, r.pod(t, "web", "blockio=fast"))
	r.host.intercept(func(op, path string) error {
		if strings.HasSuffix(path, "/io.max") {
			t.Errorf("the plugin itself did %s %s", op, path)
		}
		return nil
	})

	r.mustConfigure(t, changed("50M", "60M"))
	if kernel, stored := r.ioMax(t, id); !strings.Contains(kernel, "rbps=60000000") || !strings.Contains(stored, "rbps=60000000") {
		t.Errorf("the kernel has %q, and the runtime has stored %q", kernel, stored)
	}
}
