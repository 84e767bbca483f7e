// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLinux73 runs tests of the RDT backend that need Linux 7.3, and those that run on each kernel.
func TestLinux73(t *testing.T) {
	tests := []string{"TestOnTheKernel", "TestOneClassFileOnTheKernel", "TestTheKernelRoundsAsCheckPredicts", "TestEnergyOfTheKernel"}
	if isAMD(t) {
		tests = []string{"TestOneClassFileOnTheKernel", "TestDeviceTrafficOfTheKernel", "TestAssignableCountersOfTheKernel"}
	}
	backendTests(t, tests...)
}

// TestSubNUMA needs a CPU with two sub-NUMA nodes in each L3.
func TestSubNUMA(t *testing.T) {
	if nodes := strings.TrimSpace(mustRead(t, "/sys/devices/system/cpu/online")); nodes != "0-3" {
		t.Fatalf("the CPUs are %s, want four", nodes)
	}
	backendTests(t, "TestOneClassFileOnTheKernel")
}

// TestManyContainers has more containers than RMIDs and counters.
func TestManyContainers(t *testing.T) {
	backendTests(t, "TestAHundredContainersOnTheKernel")
}

// TestArm runs tests of the RDT backend on a kernel for arm64 with MPAM, and the programs.
func TestArm(t *testing.T) {
	backendTests(t, "TestOneClassFileOnTheKernel", "TestTheKernelRoundsAsCheckPredicts", "TestRMIDsOfAClassOfTheKernel")
	t.Run("check names the features of this machine", func(t *testing.T) {
		must(t, unix.Mount("resctrl", resctrlRoot, "resctrl", 0, ""))
		defer func() { must(t, unix.Unmount(resctrlRoot, 0)) }()
		printed, _ := output("qos-nri-plugin", "check", classFileOfArm(t))
		for _, want := range []string{"shares of caches           yes ", "bandwidth in per cent      yes ", "monitoring of containers   yes ", "energy                     no "} {
			if !strings.Contains(printed, want) {
				t.Errorf("check does not print %q:\n%s", want, printed)
			}
		}
		t.Log(printed)
	})
	t.Run("the demo passes", func(t *testing.T) {
		if printed, err := output("demo"); err != nil {
			t.Errorf("%v\n%s", err, printed)
		}
	})
}

// classFileOfArm writes a class file with shares of the cache and of memory bandwidth.
func classFileOfArm(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdt.yaml")
	text := `apiVersion: qos.noderesource.dev/v1alpha1
kind: QOSClassConfig
resources: [{name: k8s.io/rdt, rdt: {monitoring: containers, partitions: {
  a: {l3Allocation: "60%", mbAllocation: ["100%"], classes: {gold: {mbAllocation: ["50%"]}}},
  b: {l3Allocation: "40%", mbAllocation: ["50%"], classes: {bronze: {}}}}}}]
`
	must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// backendTests runs tests of pkg/rdt on the kernel of this machine.
func backendTests(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			printed, err := output("rdt.test", "-test.run=^"+name+"$", "-test.v", "-kernel="+resctrlMachine(t))
			if err != nil || !strings.Contains("\n"+printed, "\n--- PASS: "+name) {
				t.Errorf("%v\n%s", err, printed)
			}
			t.Log(printed)
		})
	}
}
