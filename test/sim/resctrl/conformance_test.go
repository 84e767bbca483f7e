// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package resctrl_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/child"
	"github.com/qos-nri/qos-nri-plugin/test/sim/resctrl"
)

var kernel = flag.String("kernel", "", "run on this machine's own resctrl, which must be unmounted, as one of: intel, intel-cdp, intel-mbps, amd")

var record = flag.Bool("record", false, "with -kernel: record what the kernel does in testdata")

// specs returns the machines by the names of their files in testdata. Each file has the results that were recorded on a kernel of the
// machine.
func specs() map[string]resctrl.Spec {
	cdp, mbps := resctrl.IntelSpec(), resctrl.IntelSpec()
	cdp.Options, mbps.Options = "cdp", "mba_MBps"
	return map[string]resctrl.Spec{"intel": resctrl.IntelSpec(), "amd": resctrl.AMDSpec(), "intel-cdp": cdp, "intel-mbps": mbps}
}

func render(results []resctrl.Result) string {
	var text strings.Builder
	for _, result := range results {
		fmt.Fprintln(&text, result)
	}
	return text.String()
}

func TestTheSimulationBehavesAsTheRecordedKernel(t *testing.T) {
	for name, spec := range specs() {
		t.Run(name, func(t *testing.T) {
			recorded, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			const task = 4711
			simulated := resctrl.New(spec)
			simulated.AddTask(task, "")
			got := render(resctrl.Run(simulated, resctrl.MountPoint, task, resctrl.Operations(spec)))
			if diff := cmp.Diff(string(recorded), got); diff != "" {
				t.Errorf("-kernel +simulation:\n%s", diff)
			}
		})
	}
}

// TestTheKernelBehavesAsTheSimulation can run only one table after each boot, because the kernel delays the reuse of the
// RMIDs of removed groups. With the flag -record, it compares nothing, and writes the file for TestTheSimulationBehavesAsTheRecordedKernel.
func TestTheKernelBehavesAsTheSimulation(t *testing.T) {
	if *kernel == "" {
		t.Skip("this test changes the resctrl of the machine; to run it, set -kernel to the name of a row of specs")
	}

	spec, ok := specs()[*kernel]
	if !ok {
		t.Fatalf("no such machine: %s", *kernel)
	}

	if err := unix.Mount("resctrl", resctrl.MountPoint, "resctrl", 0, spec.Options); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(resctrl.MountPoint, 0); err != nil {
			t.Error(err)
		}
	}()

	sleep := child.Command(t, "sleep", "10000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	spec.CPUs = runtime.NumCPU()
	if !*record {
		for _, difference := range resctrl.Disagreements(hostfs.Root("/"), resctrl.MountPoint, sleep.Process.Pid, spec) {
			t.Error(difference)
		}
		return
	}

	results := resctrl.Run(hostfs.Root("/"), resctrl.MountPoint, sleep.Process.Pid, resctrl.Operations(spec))
	if err := os.WriteFile(filepath.Join("testdata", *kernel+".txt"), []byte(render(results)), 0o644); err != nil {
		t.Fatal(err)
	}
}
