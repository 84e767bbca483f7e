// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"sigs.k8s.io/yaml"
)

// cpuDriverSource is the name of an environment variable. Its value is the directory of the source of kubernetes-sigs/dra-driver-cpu, which
// the Go module proxy does not have.
const cpuDriverSource = "QOS_E2E_DRA_DRIVER_CPU_SOURCE"

// buildCPUDriver builds dra-driver-cpu, if its source is there.
func buildCPUDriver(bin string) error {
	source := os.Getenv(cpuDriverSource)
	if source == "" {
		return nil
	}
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(bin, "dracpu"), "./cmd/dracpu")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build dra-driver-cpu in %s: %w\n%s", source, err, output)
	}
	return nil
}

// twoNUMANodes has the files of a sysfs, by their paths. Each CPU is a NUMA node with an L3 cache of its own.
func twoNUMANodes() map[string]string {
	files := map[string]string{"/sys/devices/system/cpu/online": "0-1\n", "/sys/devices/system/cpu/smt/control": "off\n"}
	for cpu := range 2 {
		id := fmt.Sprintln(cpu)
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", cpu)
		files[fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", cpu)] = id
		files[fmt.Sprintf("%snode%d", dir, cpu)] = ""
		files[dir+"topology/physical_package_id"], files[dir+"topology/core_id"], files[dir+"topology/cluster_id"] = id, id, id
		files[dir+"cache/index3/level"], files[dir+"cache/index3/id"], files[dir+"cache/index3/shared_cpu_list"] = "3\n", id, id
	}
	return files
}

// standIn is a DRA driver that prepares nothing. It publishes devices for the scheduler that the machine of the tests
// does not have.
type standIn struct{ name string }

func (s standIn) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var prepared kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == s.name {
				prepared.Devices = append(prepared.Devices, kubeletplugin.Device{
					Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device, ShareID: r.ShareID,
				})
			}
		}
		results[claim.UID] = prepared
	}
	return results, nil
}

func (s standIn) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

func (s standIn) HandleError(context.Context, error, string) {}

func (s standIn) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return nil
}

// standIn runs a DRA driver with these devices until the test ends, and creates its DeviceClass.
func (n *node) standIn(t *testing.T, driver string, devices ...resourcev1.Device) {
	t.Helper()
	data := filepath.Join("/var/lib/kubelet/plugins", driver)
	must(t, os.MkdirAll(data, 0o750))
	helper, err := kubeletplugin.Start(context.WithoutCancel(t.Context()), standIn{driver}, kubeletplugin.DriverName(driver), kubeletplugin.NodeName(n.name),
		kubeletplugin.KubeClient(n.client(t)), kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.HealthService(false))
	must(t, err)
	t.Cleanup(helper.Stop)
	must(t, helper.PublishResources(t.Context(), resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{n.name: {Slices: []resourceslice.Slice{{Devices: devices}}}},
	}))
	n.offersDevicesOf(t, driver)
}

// offersDevicesOf creates the DeviceClass of a driver, and waits until the driver has published devices. It removes both at the end.
func (n *node) offersDevicesOf(t *testing.T, driver string) {
	t.Helper()
	n.apply(t, fmt.Sprintf(`{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: %[1]s},
  spec: {selectors: [{cel: {expression: "device.driver == '%[1]s'"}}]}}`, driver))
	t.Cleanup(func() {
		n.kubectl(t, "delete", "deviceclass", driver)
		n.kubectl(t, "delete", "resourceslices", "--field-selector=spec.driver="+driver)
	})
	until(t, driver+" publishes devices", func() (bool, string) {
		seen, err := n.try("get", "resourceslices", "--field-selector=spec.driver="+driver, "-o", "jsonpath={.items[*].spec.devices[*].name}")
		return err == nil && seen != "", seen
	})
}

// onNUMANode returns a device of a stand-in.
func onNUMANode(name string, numaNode int64) resourcev1.Device {
	return resourcev1.Device{Name: name, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		deviceattribute.StandardDeviceAttributeNUMANode: {IntValue: &numaNode},
	}}
}

// standInCPUs offers CPUs with the names and attributes of dra-driver-cpu.
func standInCPUs(t *testing.T, n *node, p *draPrograms) {
	shared, devices := true, []resourcev1.Device{onNUMANode("cpudevnuma000", 0), onNUMANode("cpudevnuma001", 1)}
	for i := range devices {
		devices[i].AllowMultipleAllocations = &shared
		devices[i].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"dra.cpu/cpu": {Value: resource.MustParse("1")}}
	}
	n.standIn(t, "dra.cpu", devices...)
	coPlacement(t, n, p, func() {})
}

// realCPUs runs dra-driver-cpu, which keeps the container on the CPU of its NUMA node.
func realCPUs(t *testing.T, n *node, p *draPrograms) {
	if os.Getenv(cpuDriverSource) == "" {
		t.Skip("needs the source of kubernetes-sigs/dra-driver-cpu, which the Go module proxy does not have; " + cpuDriverSource + " does not name it")
	}
	overlay, err := yaml.Marshal(twoNUMANodes())
	must(t, err)
	n.startProcess(t, "dracpu", n.program("dracpu"), "--kubeconfig", n.cluster.kubeconfig("admin"), "--hostname-override", n.name,
		"--bind-address=127.0.0.1:8080", "--sysfs-overlay", n.write(t, "sysfs-overlay.yaml", string(overlay)))
	n.offersDevicesOf(t, "dra.cpu")
	devices := n.kubectl(t, "get", "resourceslices", "--field-selector=spec.driver=dra.cpu", "-o", "jsonpath={.items[*].spec.devices}")
	t.Logf("dra-driver-cpu publishes %s", devices)
	coPlacement(t, n, p, func() { n.onCPU(t, "placed", "1") })
}

// onCPU waits until the threads of a pod may run on these CPUs only.
func (n *node) onCPU(t *testing.T, pod, want string) {
	t.Helper()
	until(t, "pod "+pod+" runs on CPU "+want, func() (bool, string) {
		kernel, id, err := n.kernelOf(pod)
		if err != nil || len(kernel.Cgroups[id].Threads) == 0 {
			return false, fmt.Sprint("no threads: ", err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", kernel.Cgroups[id].Threads[0]))
		_, seen, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		seen, _, _ = strings.Cut(strings.TrimSpace(seen), "\n")
		return err == nil && seen == want, seen
	})
}

// allocated checks which devices the claim of a pod has.
func (n *node) allocated(t *testing.T, claim, want string) {
	t.Helper()
	if got := n.kubectl(t, "get", "resourceclaim", claim, "-o", "jsonpath={.status.allocation.devices.results[*].device}"); got != want {
		t.Errorf("claim %s has the devices %s, want %s", claim, got, want)
	}
}

// coPlacement runs a pod whose claim requests a class, CPUs and a network card of one NUMA node. The class has one slot in each of two NUMA
// nodes of a simulated machine, and the card is in the second. It calls `placed` when the pod runs.
func coPlacement(t *testing.T, n *node, p *draPrograms, placed func()) {
	for file, text := range twoNUMANodes() {
		n.write(t, "topology"+file, text)
	}
	n.standIn(t, "net.example", onNUMANode("card", 1))
	p.restartDriver(t, "--per-domain=k8s.io/blockio", "--sys-dir="+filepath.Join(n.dir, "topology/sys"))
	t.Cleanup(func() {
		p.restartDriver(t)
		n.slots(t, "blockio-gold=2")
	})
	for _, device := range []string{"blockio-gold-numa0-l3-0=1", "blockio-gold-numa1-l3-1=1", "blockio-slow-numa1-l3-1="} {
		n.slots(t, device)
	}

	n.runClaimed(t, "placed", `exactly: {deviceClassName: blockio.gold}},
    {name: cpus, exactly: {deviceClassName: dra.cpu, capacity: {requests: {dra.cpu/cpu: '1'}}}},
    {name: card, exactly: {deviceClassName: net.example}}], constraints: [{matchAttribute: resource.kubernetes.io/numaNode`, "main")
	n.running(t, "placed")
	n.inClass(t, "placed", "gold")
	n.allocated(t, "placed", "blockio-gold-numa1-l3-1 cpudevnuma001 card")
	n.reported(t, "placed", "True Assigned: class gold of k8s.io/blockio: container main of pod placed")
	placed()

	// The second slot is on the other NUMA node. A pod without a constraint takes it.
	n.runClaimed(t, "waits", `exactly: {deviceClassName: blockio.gold, selectors: [{cel: {expression:
    "device.attributes['qos.noderesource.dev'].numaNode == 1"}}]}`, "main")
	n.pending(t, "waits", "cannot allocate all claims")
	n.runPods(t, pod{name: "anywhere", classes: n.asks("gold")})
	n.inClass(t, "anywhere", "gold")
	untilSeen(t, "kubectl qos nodes shows the class of the node", func() string { return n.qos(t, "nodes") }, "gold (2/2)")
	n.delete(t, "placed")
	n.running(t, "waits")
	n.allocated(t, "waits", "blockio-gold-numa1-l3-1")
}
