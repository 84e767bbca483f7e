// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"strings"
	"syscall"
	"testing"

	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

const readLimit = "blkio.throttle.read_bps_device"

// reload changes the read limit of the container's class from 2M to 3M. If `fault` is not empty, the kernel has this fault while the
// reconciler sets the new limit. reload returns the number of containers that the reconciler has moved.
func reload(t *testing.T, fault simcgroup.Fault) (f *blockioMachine, moved int) {
	t.Helper()
	f = newBlockIOMachine(t, cgroupV1, "second")
	f.mustConfigure(t, strings.ReplaceAll(blockioFiles, "2M", "3M"))
	if fault.Op != "" {
		f.host.Cgroups().Inject(fault)
	}
	return f, f.Reconcile(t.Context())
}

func (f *blockioMachine) wantReadLimit(t *testing.T, want string) {
	t.Helper()
	data, err := f.host.ReadFile("/sys/fs/cgroup/blkio" + machinePath + "/" + readLimit)
	if string(data) != want || err != nil {
		t.Errorf("%s has %q, %v; want %q", readLimit, data, err, want)
	}
}

// TestAReloadSetsTheNewValuesOfRunningContainers: a second pass of the reconciler finds nothing to change.
func TestAReloadSetsTheNewValuesOfRunningContainers(t *testing.T) {
	f, moved := reload(t, simcgroup.Fault{})
	f.wantReadLimit(t, "8:32 3000000\n")
	if again := f.Reconcile(t.Context()); moved != 1 || again != 0 {
		t.Errorf("%d and then %d containers were moved, want 1 and 0", moved, again)
	}
}

func TestANewLimitIsSetAlthoughItsFirstWriteFails(t *testing.T) {
	f, moved := reload(t, simcgroup.Fault{Op: "write", File: readLimit, Err: syscall.EIO})
	f.wantReadLimit(t, "8:32 3000000\n")
	if moved != 1 {
		t.Errorf("%d containers were moved, want 1", moved)
	}
}

// TestAContainerKeepsItsLimitsWhileTheKernelRefusesTheNewOnes makes the writes of another limit of the container fail. The read limit then
// does not change either.
func TestAContainerKeepsItsLimitsWhileTheKernelRefusesTheNewOnes(t *testing.T) {
	f, moved := reload(t, simcgroup.Fault{Op: "write", File: "blkio.throttle.write_bps_device", Err: syscall.EIO, Lasting: true})
	f.wantReadLimit(t, "8:32 2000000\n")
	// The container has 2M, and class second has 3M now, so no class is reported.
	if class := f.class(t); moved != 0 || class != "" {
		t.Errorf("%d containers were moved, and the reported class is %q; want 0 and none", moved, class)
	}

	f.host.Cgroups().Heal()
	f.Reconcile(t.Context())
	f.wantReadLimit(t, "8:32 3000000\n")
	if class := f.class(t); class != "second" {
		t.Errorf("the reported class is %q after the kernel accepts writes again", class)
	}
}
