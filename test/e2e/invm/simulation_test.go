// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

// TestSimulation compares the simulations with the kernel. No other test can run on the same machine, because the test
// uses 28 of 31 RMIDs, and the kernel does not free them when the test removes its groups. QOS_RESCTRL has the mount
// options.
func TestSimulation(t *testing.T) {
	t.Run("the simulated cgroups behave as this kernel does", simulatedCgroups)
	t.Run("the simulated resctrl behaves as this kernel does", simulatedResctrl)
	t.Run("the RDT backend gets the same results on this kernel and on the simulation", rdtBackend)
}

// rdtBackend runs the tests of the RDT backend that also run on the simulation. resctrl is not mounted when they start.
func rdtBackend(t *testing.T) {
	printed, err := output("rdt.test", "-test.run=^Test.*OnTheKernel$", "-test.v", "-kernel="+resctrlMachine(t))
	const tests = 3 // TestOnTheKernel, TestOneClassFileOnTheKernel and TestMountingOnTheKernel; others are skipped
	if passed := strings.Count("\n"+printed, "\n--- PASS: Test"); err != nil || passed != tests {
		t.Errorf("%v\n%d of %d tests passed", err, passed, tests)
	}
	t.Log(printed)
}

// resctrlMachine returns the name of this machine in the tests of pkg/rdt.
func resctrlMachine(t *testing.T) string {
	t.Helper()
	if runtime.GOARCH == "arm64" {
		return "arm"
	}
	machine := "intel"
	if isAMD(t) {
		machine = "amd"
	}
	return machine + map[string]string{"cdp": "-cdp", "mba_MBps": "-mbps"}[os.Getenv("QOS_RESCTRL")]
}

func isAMD(t testing.TB) bool {
	t.Helper()
	return strings.Contains(mustRead(t, "/proc/cpuinfo"), "AuthenticAMD")
}

func simulatedResctrl(t *testing.T) {
	spec := resctrl.IntelSpec()
	if isAMD(t) {
		spec = resctrl.AMDSpec()
	}
	spec.Options = os.Getenv("QOS_RESCTRL")
	must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, spec.Options))
	defer func() { must(t, unix.Unmount(resctrlRoot, 0)) }()
	other := start(t, "sleep", "3600")
	defer other.end(t, syscall.SIGKILL)
	for _, difference := range resctrl.Disagreements(hostfs.Root("/"), resctrlRoot, other.cmd.Process.Pid, spec) {
		t.Error(difference)
	}
}

func simulatedCgroups(t *testing.T) {
	root, operations := "/sys/fs/cgroup", cgroup.UnifiedOperations()
	if cgroupV2(t) {
		mustWrite(t, root+"/cgroup.subtree_control", "+io +cpu")
	} else {
		root, operations = root+"/blkio", cgroup.LegacyOperations()
	}

	makePartition(t, "/dev/vda")
	place := cgroup.Place{
		Root: root, Dir: root + "/simulated", Disk: deviceNumber(t, "/dev/vda"), Partition: deviceNumber(t, "/dev/vda1"),
		Other: deviceNumber(t, "/dev/vdb"), Name: "vda",
	}

	must(t, os.Mkdir(place.Dir, 0o755))
	for _, difference := range cgroup.Differences(hostfs.Root("/"), place, operations) {
		t.Error(difference)
	}

	must(t, os.Remove(place.Dir))
}

// makePartition writes an MBR partition table with one partition of 1 MiB to a disk.
func makePartition(t testing.TB, disk string) {
	t.Helper()
	device, err := os.OpenFile(disk, os.O_WRONLY, 0)
	must(t, err)
	defer device.Close()
	table := make([]byte, 512)
	entry := table[446:]
	entry[4] = 0x83                     // Linux
	entry[9] = 2048 >> 8                // first sector, 2048, in bytes 8 to 11
	entry[13] = 2048 >> 8               // number of sectors, in bytes 12 to 15
	table[510], table[511] = 0x55, 0xaa // signature
	_, err = device.Write(table)
	must(t, err)
	must(t, unix.IoctlSetInt(int(device.Fd()), unix.BLKRRPART, 0))
	eventually(t, "the partition appears", func() error {
		_, err := os.Stat(disk + "1")
		return err
	})
}
