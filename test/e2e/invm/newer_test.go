// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"strings"
	"testing"
)

// TestLinux73 runs tests of the RDT backend that need Linux 7.3, and those that run on each kernel.
func TestLinux73(t *testing.T) {
	tests := []string{"TestOnTheKernel", "TestOneClassFileOnTheKernel", "TestTheKernelRoundsAsCheckPredicts", "TestEnergyOfTheKernel"}
	if isAMD(t) {
		tests = []string{"TestOneClassFileOnTheKernel", "TestDeviceTrafficOfTheKernel", "TestAssignableCountersOfTheKernel"}
	}
	for _, name := range tests {
		t.Run(name, func(t *testing.T) {
			printed, err := output("rdt.test", "-test.run=^"+name+"$", "-test.v", "-kernel="+resctrlMachine(t))
			if err != nil || !strings.Contains("\n"+printed, "\n--- PASS: "+name) {
				t.Errorf("%v\n%s", err, printed)
			}
			t.Log(printed)
		})
	}
}
