// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package rdt

import (
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/rdt/groups"
	"github.com/qos-nri/qos-nri-plugin/pkg/resctrl"
	sim "github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// countedContainer is a monitored container, in the class gold at first.
type countedContainer struct {
	*container
	b *Backend
}

func newCountedContainer(t *testing.T) countedContainer {
	t.Helper()
	c, b := newContainer(t, sim.IntelSpec(), "qos-gold")
	apply(t, b, monitorAll)
	b.Monitor(t.Context(), target, "gold")
	return countedContainer{c, b}
}

// want sets the counter of the container's monitoring group in a class, and compares the measured total of the container.
// If the parameter `want` is nil, the reading must have no total.
func (c countedContainer) want(t *testing.T, class, counter string, want any) {
	t.Helper()
	c.fs.Count(resctrl.MonitoringGroup(groups.Of(class), groups.Prefix+target.ID), 0, "mbm_total_bytes", counter)
	if got := containerUses(t, c.b, target, "memory_bandwidth_bytes_total", class); got != want {
		t.Errorf("with the counter at %s, the container has transferred %v bytes, want %v", counter, got, want)
	}
}

// TestTheTotalOfAContainerNeverDecreases reads a counter that the kernel makes unavailable for a while, and resets.
func TestTheTotalOfAContainerNeverDecreases(t *testing.T) {
	c := newCountedContainer(t)
	for _, step := range []struct {
		counter string
		want    any
	}{
		{"1000", 1000.0},
		{"Unavailable", nil}, {"1010", 1010.0},
		{"Unassigned", nil}, {"20", 1010.0}, // reset while it could not be read
		{"25", 1015.0},
		{"3", 1015.0}, {"4", 1016.0}, // reset
		{"Error", nil}, {"4", 1016.0},
	} {
		c.want(t, "gold", step.counter, step.want)
	}
}

// TestTheTotalOfAContainerContinuesInANewGroup makes the backend create the monitoring group a second time.
func TestTheTotalOfAContainerContinuesInANewGroup(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *sim.FS){
		"another program has removed the group": func(t *testing.T, fs *sim.FS) {
			t.Helper()
			must(t, fs.Remove(sim.MountPoint+"/qos-gold/mon_groups/qos-c"))
		},
		"resctrl was unmounted": func(_ *testing.T, fs *sim.FS) { fs.Unmount() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCountedContainer(t)
			c.want(t, "gold", "1000", 1000.0)
			lose(t, c.fs)
			repair(t, c.b)
			c.fs.AddTask(target.PID, "qos-gold") // an unmount moves it to the root group
			c.b.Monitor(t.Context(), target, "gold")
			c.want(t, "gold", "0", 1000.0)
			c.want(t, "gold", "7", 1007.0)
		})
	}
}

// TestTheTotalOfAContainerContinuesAfterAChangeOfClass changes the class on a kernel that can move the group, and on Linux
// before 6.5, where the backend creates the group again.
func TestTheTotalOfAContainerContinuesAfterAChangeOfClass(t *testing.T) {
	for name, test := range map[string]struct {
		rename  syscall.Errno
		counter string // of the container's group, 5 bytes after the change
	}{
		"the group is moved":         {0, "1005"},
		"the group is created again": {syscall.EPERM, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCountedContainer(t)
			c.want(t, "gold", "900", 900.0)
			// Of the bytes up to the change, the backend has not read the last 100.
			c.fs.Count("qos-gold/mon_groups/qos-c", 0, "mbm_total_bytes", "1000")
			refuse(c.fs, test.rename, func(call sim.Call) bool { return call.Op == "rename" && test.rename != 0 })
			must(t, c.b.Enforce(t.Context(), target, "gold", "bronze"))
			c.want(t, "bronze", test.counter, 1005.0)
		})
	}
}

// TestTheTotalOfAContainerBeginsAt0AfterARestart restarts the plugin. The total must then begin at 0, not at the kernel's value. The kernel's
// value can be above 0 and below the last total, because the plugin may have created the group again. Prometheus would treat such a drop as
// a counter reset, and count the whole value as growth.
func TestTheTotalOfAContainerBeginsAt0AfterARestart(t *testing.T) {
	c := newCountedContainer(t)
	c.want(t, "gold", "1000", 1000.0)
	c.b = newBackend(c.fs, c)
	apply(t, c.b, monitorAll)
	c.want(t, "gold", "1000", 0.0)
	c.want(t, "gold", "1002", 2.0)
}

func TestTheTotalsOfAContainerAreForgottenWhenItsMonitoringEnds(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Backend){
		"the container ends":             func(_ *testing.T, b *Backend) { b.Unmonitor(target.ID) },
		"no class is monitored any more": func(t *testing.T, b *Backend) { t.Helper(); apply(t, b, twoPartitions) },
		"only another class is monitored": func(t *testing.T, b *Backend) {
			t.Helper()
			apply(t, b, twoPartitions+"monitoring: {containers: [bronze]}")
			b.Monitor(t.Context(), target, "gold")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCountedContainer(t)
			c.want(t, "gold", "1000", 1000.0)
			end(t, c.b)
			if got := c.b.Monitored(); len(got) > 0 {
				t.Errorf("the backend still has totals or groups of the containers %q", got)
			}
		})
	}
}
