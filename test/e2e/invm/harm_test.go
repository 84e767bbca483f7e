// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// gone returns an error while a file exists.
func gone(path string) error {
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s is there", path)
	}
	return nil
}

// emptyAndGone returns an error while a resctrl group exists. The error lists the threads in the group.
func emptyAndGone(group string) error {
	directory := filepath.Join(resctrlRoot, group)
	if err := gone(directory); err == nil {
		return nil
	}

	tasks, err := os.ReadFile(filepath.Join(directory, "tasks"))
	if err != nil {
		return err
	}

	var found []string
	for _, thread := range strings.Fields(string(tasks)) {
		stat, _ := os.ReadFile(filepath.Join("/proc", thread, "stat")) // has its name, state and parent
		cgroup, _ := os.ReadFile(filepath.Join("/proc", thread, "cgroup"))
		found = append(found, fmt.Sprintf("%.60q in %q", stat, cgroup))
	}

	return fmt.Errorf("%s exists with %s", directory, strings.Join(found, "; "))
}

// damagedGroups: changes of the plugin's groups by another program are repaired, also for running containers.
func damagedGroups(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "main", args: []string{"spawn", "2"}})
	before := schemataLines(t, "qos-gold")
	whole := func() error {
		if diff := cmp.Diff(before, schemataLinesOr(t, "qos-gold")); diff != "" {
			return fmt.Errorf("schemata (-before +after):\n%s", diff)
		}
		return c.inGroup("qos-gold")
	}

	for _, harm := range []struct {
		name string
		do   func() error
	}{
		{"removed", func() error { return os.Remove(filepath.Join(resctrlRoot, "qos-gold")) }},
		{"rewritten", func() error {
			return os.WriteFile(filepath.Join(resctrlRoot, "qos-gold/schemata"), []byte("L3:0=1;1=1\n"), 0)
		}},
		{"robbed of a process", func() error {
			processes := n.processes(t, c.cgroup())
			return os.WriteFile(filepath.Join(resctrlRoot, "tasks"), []byte(processes[len(processes)-1]), 0)
		}},
	} {
		must(t, harm.do())
		if harm.name != "removed" && whole() == nil { // a removal is repaired at once
			t.Errorf("%s: the group was not damaged", harm.name)
		}
		began := time.Now()
		eventually(t, "a group that was "+harm.name+" is whole", whole)
		t.Logf("a group that was %s was restored after %s", harm.name, time.Since(began).Round(time.Millisecond))
	}
}

// schemataLinesOr works like schemataLines, and returns nil if the group does not exist.
func schemataLinesOr(t testing.TB, group string) []string {
	if gone(filepath.Join(resctrlRoot, group)) == nil {
		return nil
	}
	return schemataLines(t, group)
}

// remounted: resctrl is unmounted while containers run. The unmount also removes foreign groups, so this case is the
// last one.
func remounted(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "main"})
	before := schemataLines(t, "qos-gold")
	must(t, unix.Unmount(resctrlRoot, 0))
	n.foreign = nil
	eventually(t, "resctrl is mounted again, with all groups", func() error {
		if diff := cmp.Diff(before, schemataLinesOr(t, "qos-gold")); diff != "" {
			return fmt.Errorf("schemata (-before +after):\n%s", diff)
		}
		return c.inGroup("qos-gold")
	})

	n.holds(t)
	t.Log(n.condition(t, rdt, "KernelStateInSync").GetMessage())
	p.run(t, spec{name: "one"}).wantGroup(t, "qos-gold")
}

// disksComeAndGo removes a disk from the running machine, and adds it again.
func disksComeAndGo(t *testing.T, p *pod) {
	n := p.node
	c := p.run(t, spec{name: "limited"})
	whole, vda := throttled(t), deviceNumber(t, "/dev/vda")
	rest := ioLimits{vda: whole[vda]}

	device, err := filepath.EvalSymlinks("/sys/block/vdb")
	must(t, err)
	pci := filepath.Join(device, "../../..")
	must(t, os.WriteFile(filepath.Join(pci, "remove"), []byte("1"), 0))
	eventually(t, "the class says that a disk is missing", func() error { return n.degraded(t, blockio, "throttled", "/dev/vdb") })
	must(t, n.hasLimits(t, c.cgroup(), rest))
	eventually(t, "a resize succeeds although a disk of the class is missing", func() error {
		_, err := n.runtime.UpdateContainerResources(requestContext(t), &cri.UpdateContainerResourcesRequest{
			ContainerId: c.id, Linux: &cri.LinuxContainerResources{CpuShares: 512},
		})
		return err
	})

	p.run(t, spec{name: "weighed"}) // the class of this container also names the disk
	p.update(t, "limited", "blockio=single")
	p.update(t, "limited", "blockio=throttled")
	must(t, n.hasLimits(t, c.cgroup(), rest))

	began := time.Now()
	must(t, os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0))
	eventually(t, "the disk is throttled again", func() error { return n.hasLimits(t, c.cgroup(), whole) })
	t.Logf("a new disk was throttled %s after the rescan of the bus", time.Since(began).Round(time.Millisecond))
}
