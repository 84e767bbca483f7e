// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/qos-nri/qos-nri-plugin/internal/hostfs"
	"github.com/qos-nri/qos-nri-plugin/test/invariant"
	"github.com/qos-nri/qos-nri-plugin/test/nriruntime"
	"github.com/qos-nri/qos-nri-plugin/test/stage"
)

// TestLinux73 runs tests of the RDT backend for features that older kernels lack, and some that run on each kernel.
func TestLinux73(t *testing.T) {
	tests := []string{
		"TestOnTheKernel", "TestOneClassFileOnTheKernel", "TestTheKernelRoundsAsCheckPredicts", "TestEnergyOfTheKernel",
		"TestBitUsageOfTheKernel", "TestClassesAreRepairedWhenACPUOfThisMachineGoesOffline",
	}
	// On AMD, the RMIDs are enough for four tests only: the emulated cache never frees those of removed groups.
	if isAMD(t) {
		tests = []string{"TestOneClassFileOnTheKernel", "TestDeviceTrafficOfTheKernel", "TestAssignableCountersOfTheKernel", "TestBitUsageOfTheKernel"}
	}
	backendTests(t, tests...)
}

// TestSubNUMA needs a CPU with two sub-NUMA nodes in each L3.
func TestSubNUMA(t *testing.T) {
	if cpus := strings.TrimSpace(mustRead(t, "/sys/devices/system/cpu/online")); cpus != "0-3" {
		t.Fatalf("the CPUs are %s, want four", cpus)
	}
	backendTests(t, "TestOneClassFileOnTheKernel")
}

// TestManyContainers uses more containers than RMIDs and counters.
func TestManyContainers(t *testing.T) {
	backendTests(t, "TestAHundredContainersOnTheKernel")
}

// TestArm runs tests of the RDT backend on a kernel for arm64 with MPAM, and the programs of the image.
func TestArm(t *testing.T) {
	backendTests(t, "TestOneClassFileOnTheKernel", "TestTheKernelRoundsAsCheckPredicts", "TestRMIDsOfAClassOfTheKernel")
	t.Run("classes have separate parts of the cache for code and for data", codeAndDataOnArm)
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
	t.Run("the programs of the image have one version", func(t *testing.T) {
		versions := map[string]bool{}
		for _, name := range []string{"qos-nri-plugin", "qos-kubelet-shim", "qos-dra-driver", "qos-storage"} {
			printed, err := output("/"+name, "version")
			must(t, err)
			versions[strings.TrimPrefix(printed, name)] = true
		}
		if len(versions) != 1 {
			t.Errorf("the programs of the image print the versions %v, want the same from each", versions)
		}
	})
	t.Run("the plugin of the image puts a container into its class", containerOnArm)
	t.Run("the demo passes", func(t *testing.T) {
		if printed, err := output("demo"); err != nil {
			t.Errorf("%v\n%s", err, printed)
		}
	})
}

func codeAndDataOnArm(t *testing.T) {
	if err := unix.Mount("resctrl", resctrlRoot, "resctrl", 0, "cdp"); err != nil {
		t.Skip("the kernel is built without CONFIG_EXPERT: ", err)
	}
	must(t, unix.Unmount(resctrlRoot, 0))
	backendTests(t, "TestCodeAndDataApartOfTheKernel")
}

// withoutIO is a machine whose kernel has no io controller.
type withoutIO struct{ *stage.Machine }

func (withoutIO) MakePodCgroup(parent string) error {
	return os.MkdirAll("/sys/fs/cgroup"+parent, 0o755)
}

// containerOnArm runs the plugin with the runtime of test/nriruntime, whose containers are processes of this machine.
func containerOnArm(t *testing.T) {
	must(t, os.MkdirAll(logDirectory(), 0o755))
	machine, err := stage.NewMachine()
	must(t, err)
	runtime, err := nriruntime.New("/run", nriruntime.Options{OCI: withoutIO{machine}})
	must(t, err)
	must(t, runtime.Start())
	defer runtime.Stop()
	writeClassFile(t, mustRead(t, classFileOfArm(t)))
	n := &node{plugin: start(t, "qos-nri-plugin", "run", "--metrics-address=", "--nri-socket", runtime.Socket())} // the kernel has no TCP
	defer func() {
		n.plugin.end(t, syscall.SIGTERM)
		t.Log(mustRead(t, filepath.Join(logDirectory(), "qos-nri-plugin.log")))
		_ = unix.Unmount(resctrlRoot, 0) // the plugin has mounted it
	}()
	n.waitRegistered(t)

	ctx := requestContext(t)
	pod, err := runtime.RunPod(ctx, nriruntime.PodConfig{Name: "web", Annotations: map[string]string{keyOf("main"): "rdt=gold", keyOf("wrong"): "rdt=platinum"}})
	must(t, err)
	id, err := runtime.CreateContainer(ctx, pod, nriruntime.ContainerConfig{Name: "main"})
	must(t, err)
	must(t, runtime.StartContainer(ctx, id))
	if _, err := runtime.CreateContainer(ctx, pod, nriruntime.ContainerConfig{Name: "wrong"}); err == nil || !strings.Contains(err.Error(), "platinum") {
		t.Errorf("the creation of a container with a class that does not exist returned %v, want an error that names the class", err)
	}
	live := invariant.Machine{API: n.api(t), Host: hostfs.Root("/"), Live: invariant.LiveIn(runtime)}
	for _, violation := range live.Wait(ctx) {
		t.Error(violation)
	}
	c, err := runtime.Container(id)
	must(t, err)
	must(t, threadsInGroup(strconv.Itoa(c.PID), "qos-gold"))

	for _, command := range [][]string{{"status"}, {"assignments"}, {"top", "--once", "--interval", "1s", "--containers"}} {
		printed, err := output("qos-nri-plugin", command...)
		if err != nil || !strings.Contains(printed, "gold") {
			t.Errorf("%s returned %v; want the class gold in its output:\n%s", command[0], err, printed)
		}
		t.Log(printed)
	}
	must(t, runtime.RemovePod(ctx, pod))
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
