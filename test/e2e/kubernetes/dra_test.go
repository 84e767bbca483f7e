// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	qosclasses "github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/e2e/remote"
)

// draPrograms is an installation that offers classes by Dynamic Resource Allocation.
type draPrograms struct {
	*programs
	driver *process
	usual  []string // arguments of the driver
}

// installDRA starts the plugin, the publisher and the DRA driver as processes.
func (n *node) installDRA(t *testing.T) *draPrograms {
	t.Helper()
	n.kubectl(t, "apply", "-f", crd)
	t.Cleanup(func() { n.kubectl(t, "delete", "--ignore-not-found", "-f", crd) })
	must(t, os.MkdirAll("/var/run/cdi", 0o755))
	p := &draPrograms{programs: n.install(t, "--publish=node-object,pod-conditions,events")}
	// The driver runs as in the DaemonSet: as root without capabilities.
	p.driver = n.process("driver", "setpriv", "--bounding-set=-all", "--inh-caps=-all", n.program("qos-dra-driver"),
		"--node-name", n.name, "--kubeconfig", n.cluster.kubeconfig("admin"), "--grace=5s", "--no-execute")
	p.usual = p.driver.args
	p.driver.mustStart(t)
	t.Cleanup(func() { must(t, p.driver.end(syscall.SIGTERM)) })
	n.makeDeviceClasses(t)
	return p
}

// makeDeviceClasses creates the DeviceClasses of the node's classes, as docs/dra.md says.
func (n *node) makeDeviceClasses(t *testing.T) {
	t.Helper()
	until(t, "the node reports its classes", func() (bool, string) {
		c := class(n.object(), "gold")
		return c.Capacity == 2, fmt.Sprintf("%+v", c)
	})
	n.apply(t, n.qos(t, "device-classes"))
	t.Cleanup(func() { n.kubectl(t, "delete", "deviceclasses", "--all") })
}

// back waits until the programs are ready, and starts those that do not run.
func (p *draPrograms) back(t *testing.T) {
	t.Helper()
	if !p.driver.running() {
		p.driver.mustStart(t)
	}
	p.programs.back(t)
	p.ready(t, func() string { return "127.0.0.1:9422" })
}

// slots waits until the ResourceSlice of the node has a device with these slots and taints, e.g. "blockio-gold=2".
func (n *node) slots(t *testing.T, want string) {
	t.Helper()
	until(t, "the ResourceSlice has "+want, func() (bool, string) {
		seen, _ := n.try("get", "resourceslices", "-o",
			`jsonpath={range .items[*].spec.devices[*]}{.name}={.capacity.slots.value}{range .taints[*]},{.key}{end} {end}`)
		return strings.Contains(" "+seen+" ", " "+want+" "), seen
	})
}

// TestDRA uses the plugin, the publisher and the DRA driver as programs of the machine.
func TestDRA(t *testing.T) {
	n := ready(t)
	p := n.installDRA(t)
	if got := n.qos(t, "check", "--dra"); !strings.Contains(got, "allow classes by DRA") {
		t.Errorf("kubectl qos check --dra prints %s", got)
	}
	t.Run("manifests for device plugins are satisfied by DRA", func(t *testing.T) { limitsByDRA(t, n) })
	t.Run("users cannot forge an allocation", func(t *testing.T) { allocationsAreNotForged(t, n) })
	t.Run("tenants have no rights beyond claims", func(t *testing.T) { tenantsAreConfined(t, n) })
	t.Run("a pod gets the second choice of its claim if the first is full", func(t *testing.T) { secondChoice(t, n) })
	t.Run("each container of a shared claim takes a slot", func(t *testing.T) { sharedClaim(t, n) })
	t.Run("a slot that a pod takes by annotation is not offered to the scheduler", func(t *testing.T) { slotsTakenOutside(t, n) })
	t.Run("a quota counts limits and claims", func(t *testing.T) { quotaUnderDRA(t, n) })
	t.Run("restarts leave pods alone", func(t *testing.T) { restartsUnderDRA(t, n, p) })
	t.Run("classes change while pods have them", func(t *testing.T) { classesChangeUnderDRA(t, n, p) })
	t.Run("a class, CPUs and a card are of one NUMA node", func(t *testing.T) { standInCPUs(t, n, p) })
	t.Run("with dra-driver-cpu, a pod gets a class and a CPU of one NUMA node", func(t *testing.T) { realCPUs(t, n, p) })
	t.Run("the node is switched to device plugins and back while pods run", func(t *testing.T) { switchWithPods(t, n, p) })
	t.Run("the driver writes little to the API server", func(t *testing.T) { fewWrites(t, n, p) })
}

// TestDRAManifests installs the driver as docs/dra.md says, and tests the rights and files that depend on the
// manifests.
func TestDRAManifests(t *testing.T) {
	n := ready(t)
	d := n.installDaemonSet(t, deploy+"kubernetes-dra")
	n.kubectl(t, "-n", "qos-system", "rollout", "status", "daemonset/qos-dra-driver", within)
	d.setClasses(t, fmt.Sprintf(classes, 2))
	n.makeDeviceClasses(t)
	t.Run("pods get their classes", func(t *testing.T) { limitsByDRA(t, n) })
	t.Run("the driver's token can change only its node", func(t *testing.T) { driverTokenIsConfined(t, n) })
	t.Run("a lowered capacity reaches the ResourceSlice", func(t *testing.T) {
		d.setClasses(t, fmt.Sprintf(classes, 1))
		n.slots(t, "blockio-gold=1")
	})
}

// driverTokenIsConfined sends requests with the token of the driver.
func driverTokenIsConfined(t *testing.T, n *node) {
	pid, err := remote.PIDOf("/qos-dra-driver")
	must(t, err)
	token, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/var/run/secrets/kubernetes.io/serviceaccount/token", pid))
	must(t, err)
	const path, kind = "/apis/resource.k8s.io/v1/resourceslices", "application/json"
	const slice = `{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "forged"},
  "spec": {"driver": "qos.noderesource.dev", "nodeName": %[1]q, "pool": {"name": %[1]q, "generation": 1, "resourceSliceCount": 1}, "devices": []}}`
	for body, want := range map[string]string{
		fmt.Sprintf(slice, "node-2"): "the ResourceSlice is not of the node of the driver",
		strings.Replace(fmt.Sprintf(slice, n.name), "qos.noderesource.dev", "gpu.example", 1): "the ResourceSlice is of another driver",
	} {
		if got := n.request(t, string(token), http.MethodPost, path, kind, body); !strings.Contains(got, want) {
			t.Errorf("the answer is %s, want %s", got, want)
		}
	}
	n.noWarnings(t, "qos-confine-dra-driver")
	if got := n.request(t, string(token), http.MethodGet, "/api/v1/pods", kind, ""); !strings.Contains(got, "forbidden") {
		t.Errorf("the driver can list pods: %.200s", got)
	}
}

// limitsByDRA runs pods whose manifests are those for device plugins.
func limitsByDRA(t *testing.T, n *node) {
	n.slots(t, "blockio-gold=2")
	n.slots(t, "blockio-slow=") // no limit
	gold := n.asks("gold")
	n.runPods(t, pod{name: "first", classes: gold}, pod{name: "second", classes: gold}, pod{name: "asks-not"})
	n.inClass(t, "first", "gold")
	n.inClass(t, "second", "gold")
	n.inClass(t, "asks-not", "standard")
	n.condition(t, "first", "blockio gold (allocated)")
	n.reported(t, "first", `True Assigned: class gold of k8s.io/blockio: container main of pod first {"class":"gold","resource":"k8s.io/blockio","values":{"`)
	n.replaces(t, pod{name: "third", classes: gold}, "first", "cannot allocate all claims")
	n.inClass(t, "third", "gold")
	n.slots(t, "blockio-gold=2")
}

// claimed returns a claim with one request, and a pod whose containers have the claim. `request` is the request as
// YAML, without its name.
func claimed(name, request string, containers ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: %[1]s, namespace: default},
  spec: {devices: {requests: [{name: class, %[2]s}]}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: default}, spec: {terminationGracePeriodSeconds: 1, resourceClaims: [{name: c, resourceClaimName: %[1]s}], containers: [`,
		name, request)
	for _, container := range containers {
		fmt.Fprintf(&text, `{name: %s, image: %s, imagePullPolicy: Never, resources: {claims: [{name: c}]}}, `, container, workloadImage)
	}
	return text.String() + "]}}\n"
}

func (n *node) runClaimed(t *testing.T, name, request string, containers ...string) {
	t.Helper()
	n.apply(t, claimed(name, request, containers...))
	t.Cleanup(func() {
		n.kubectl(t, "delete", "--ignore-not-found", "--wait", within, "pod/"+name, "resourceclaim/"+name)
	})
}

// allocationsAreNotForged runs pods of a user who may create pods and claims in one namespace.
func allocationsAreNotForged(t *testing.T, n *node) {
	gold := qosclasses.Pair{Resource: qosclasses.BlockIOResource, Class: "gold"}
	name, value, _ := strings.Cut(qosclasses.CDIEnvironment(gold), "=")
	n.apply(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: by-environment, namespace: default}, spec: {terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: %s, imagePullPolicy: Never, env: [{name: %s, value: %s}]}]}}`, workloadImage, name, value))
	t.Cleanup(func() { n.kubectl(t, "delete", "--wait", within, "pod/by-environment") })
	n.awaitInField(t, "a pod with the variable of a CDI device is refused", "shows a class that is not allocated to the container",
		"{.status.containerStatuses[*].state.waiting.message}", "pod", "by-environment")

	n.createPods(t, pod{name: "by-annotation", annotations: map[string]string{
		"cdi.k8s.io/qos": qosclasses.CDIDevice(gold),
		"allocated.qos.noderesource.dev/blockio.gold": "blockio=gold",
	}})
	n.running(t, "by-annotation")
	n.inClass(t, "by-annotation", "standard")

	// Claims for 0 slots consume one slot each. A claim for two devices gets none, because a class is one device.
	const nothing = "exactly: {deviceClassName: blockio.gold, capacity: {requests: {slots: '0'}}}"
	for _, name := range []string{"zero-1", "zero-2"} {
		n.runClaimed(t, name, nothing, "main")
		n.running(t, name)
		n.inClass(t, name, "gold")
	}
	n.runClaimed(t, "zero-3", nothing, "main")
	n.pending(t, "zero-3", "cannot allocate all claims")
	n.delete(t, "zero-1", "zero-2", "zero-3")

	n.apply(t, "{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: any}, spec: {}}") // as an administrator may create it
	n.runClaimed(t, "other-class", "exactly: {deviceClassName: any, selectors: [{cel: {expression: \"device.attributes['qos.noderesource.dev'].class == 'gold'\"}}]}", "main")
	n.awaitInField(t, "a class by another DeviceClass is refused", `request class has allocated class "gold" of k8s.io/blockio by DeviceClass "any"`,
		"{.items[*].message}", "events", "--field-selector=involvedObject.name=other-class")
	n.kubectl(t, "delete", "--wait", within, "pod/other-class", "deviceclass/any")

	n.runClaimed(t, "two-units", "exactly: {deviceClassName: blockio.gold, count: 2}", "main")
	n.pending(t, "two-units", "cannot allocate all claims")
}

// secondChoice runs a pod that takes silver, because gold is full.
func secondChoice(t *testing.T, n *node) {
	n.runPods(t, pod{name: "one", classes: n.asks("gold")}, pod{name: "two", classes: n.asks("gold")})
	n.runClaimed(t, "second-choice", "firstAvailable: [{name: best, deviceClassName: blockio.gold}, {name: next, deviceClassName: blockio.silver}]", "main")
	n.running(t, "second-choice")
	n.inClass(t, "second-choice", "silver")
	n.condition(t, "second-choice", "blockio silver (allocated)")
	if got := strings.Join(strings.Fields(n.qos(t, "pods", "second-choice")), " "); !strings.Contains(got, "k8s.io/blockio silver silver allocated") {
		t.Errorf("kubectl qos pods prints %s", got)
	}
	n.reported(t, "second-choice", "True Assigned: class silver of k8s.io/blockio: container main of pod second-choice")
}

// sharedClaim runs two containers with one claim. The scheduler counts one slot for the claim. The driver takes the other slot out of the
// ResourceSlice, so that no pod waits on the node for a slot that is taken.
func sharedClaim(t *testing.T, n *node) {
	n.runClaimed(t, "shared", "exactly: {deviceClassName: blockio.gold}", "main", "side")
	n.running(t, "shared")
	n.inClass(t, "shared", "gold")
	n.slots(t, "blockio-gold=1")
	n.createPods(t, pod{name: "waits", classes: n.asks("gold")})
	n.pending(t, "waits", "cannot allocate all claims")
	n.delete(t, "shared")
	n.running(t, "waits")
}

// slotsTakenOutside runs a pod that requests a class by annotation, so that the scheduler does not count it.
func slotsTakenOutside(t *testing.T, n *node) {
	before := n.driverWrites(t, "resourceslices")
	n.runPods(t, pod{name: "by-annotation", annotations: map[string]string{podAnnotation: "blockio=gold"}})
	n.slots(t, "blockio-gold=1")
	if writes := n.driverWrites(t, "resourceslices") - before; writes != 1 {
		t.Errorf("the driver has written %d ResourceSlices for one change, want one", writes)
	}
	n.runPods(t, pod{name: "seen", classes: n.asks("gold")})
	n.createPods(t, pod{name: "waits", classes: n.asks("gold")})
	n.pending(t, "waits", "cannot allocate all claims")
	n.delete(t, "by-annotation")
	n.slots(t, "blockio-gold=2")
	n.running(t, "waits")
}

// quotaUnderDRA runs a pod that requests a class by its limits and one that requests it by a claim. The quota refuses a
// third pod with a claim.
func quotaUnderDRA(t *testing.T, n *node) {
	const hard = "{requests.qos.noderesource.dev/blockio.gold: 2, blockio.gold.deviceclass.resource.k8s.io/devices: 9}"
	n.apply(t, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: gold, namespace: default}, spec: {hard: "+hard+"}}")
	t.Cleanup(func() { n.kubectl(t, "delete", "quota", "gold") })
	used := func(want string) {
		t.Helper()
		n.awaitInField(t, "the quota counts "+want, want, "{.status.used}", "quota", "gold")
	}
	used(`"requests.qos.noderesource.dev/blockio.gold":"0"`)
	n.runPods(t, pod{name: "by-limits", classes: []string{"blockio.gold"}})
	used(`"requests.qos.noderesource.dev/blockio.gold":"1"`)
	const request = "exactly: {deviceClassName: blockio.gold}"
	n.runClaimed(t, "by-claim", request, "main")
	n.running(t, "by-claim")
	used(`"requests.qos.noderesource.dev/blockio.gold":"2"`)
	used(`"blockio.gold.deviceclass.resource.k8s.io/devices":"2"`)
	wantRefusal(t, "a third request", "exceeded quota: gold")(n.tryWith(claimed("too-many", request, "main"), "apply", "-f", "-", "--dry-run=server"))
}

// restartsUnderDRA kills one program after another while pods run.
func restartsUnderDRA(t *testing.T, n *node, p *draPrograms) {
	n.runPods(t, pod{name: "stays", classes: n.asks("gold")})
	same := n.sameContainers(t, "stays")
	killDriver := func() { p.driver.mustEnd(t, syscall.SIGKILL) }
	for _, restart := range []struct {
		name string
		do   func()
	}{
		{"driver", killDriver},
		{"kubelet", func() { n.restartKubelet(t) }},
		{"plugin", func() { p.killPlugin(t) }},
		{"kubelet-then-driver", func() {
			n.kubelet.mustEnd(t, syscall.SIGKILL)
			killDriver()
			n.kubelet.mustStart(t)
		}},
	} {
		restart.do()
		p.back(t)
		after := "after-" + restart.name
		n.runPods(t, pod{name: after, classes: n.asks("gold")})
		n.inClass(t, after, "gold")
		n.inClass(t, "stays", "gold")
		n.slots(t, "blockio-gold=2")
		same("a restart of " + restart.name)
		n.delete(t, after)
	}
}

// classesChangeUnderDRA lowers the capacity of a class below its use, removes the class, and evicts its pods by a taint.
func classesChangeUnderDRA(t *testing.T, n *node, p *draPrograms) {
	t.Cleanup(func() { p.setClasses(t, fmt.Sprintf(classes, 2)) })
	n.createPods(t, pod{name: "one", classes: n.asks("gold")})
	n.runClaimed(t, "two", "exactly: {deviceClassName: blockio.gold}", "main")
	n.running(t, "one", "two")
	same := n.sameContainers(t, "one", "two")
	n.setGold(t, p.programs, 1)
	n.slots(t, "blockio-gold=1")
	n.restartKubelet(t)
	n.createPods(t, pod{name: "waits", classes: n.asks("gold")})
	n.pending(t, "waits", "cannot allocate all claims")

	removed := strings.NewReplacer("{name: gold,", "{name: best,", "gold: [", "best: [").Replace(fmt.Sprintf(classes, 2))
	p.setClasses(t, removed)
	n.slots(t, "blockio-gold=,qos.noderesource.dev/removed")
	n.slots(t, "blockio-best=2")
	n.inClass(t, "one", "gold")
	same("a change of the class files")

	p.setClasses(t, strings.Replace(removed, "  defaultClass:", "  onClassRemoved: evict\n  defaultClass:", 1))
	n.kubectl(t, "wait", "--for=delete", within, "pod/two") // Kubernetes 1.36 does not delete "one", whose spec has no claim
}

// driverWrites returns the number of writes of the driver to objects of a resource.
func (n *node) driverWrites(t *testing.T, resource string) (count int) {
	t.Helper()
	for _, write := range n.writesOf(t, "qos-dra-driver") {
		if strings.HasSuffix(write, " "+resource) {
			count++
		}
	}
	return count
}

// reported waits until the status of the claim of a pod has the condition Assigned, as "STATUS REASON: MESSAGE DATA", with a text.
func (n *node) reported(t *testing.T, pod, want string) {
	t.Helper()
	until(t, "the claim of pod "+pod+" reports "+want, func() (bool, string) {
		claim := n.of(pod, "{.status.extendedResourceClaimStatus.resourceClaimName}{.spec.resourceClaims[*].resourceClaimName}")
		seen, _ := n.try("get", "resourceclaim", claim, "-o",
			"jsonpath={range .status.devices[*]}{.conditions[0].status} {.conditions[0].reason}: {.conditions[0].message} {.data}{end}")
		return strings.Contains(seen, want), seen
	})
}

// fewWrites checks that the driver does not write the ResourceSlice while pods start and end, because the scheduler
// counts their claims, and that it writes the status of each claim once.
func fewWrites(t *testing.T, n *node, p *draPrograms) {
	n.slots(t, "blockio-gold=2")
	sliceWrites, claimWrites := n.driverWrites(t, "resourceslices"), n.driverWrites(t, "resourceclaims/status")
	n.runPods(t, pod{name: "comes-and-goes", classes: n.asks("gold")})
	n.reported(t, "comes-and-goes", "True Assigned")
	n.delete(t, "comes-and-goes")
	n.runPods(t, pod{name: "comes-again", classes: n.asks("gold")})
	n.reported(t, "comes-again", "True Assigned")
	if s, c := n.driverWrites(t, "resourceslices")-sliceWrites, n.driverWrites(t, "resourceclaims/status")-claimWrites; s != 0 || c != 2 {
		t.Errorf("for two claims, the driver has written the ResourceSlice %d times and statuses of claims %d times, want 0 and 2", s, c)
	}
	now, most := memory(t, p.driver)
	t.Logf("the driver has %.1f MiB resident, %.1f MiB at most", now, most)
	now, most = memory(t, p.shim)
	t.Logf("the publisher has %.1f MiB resident, %.1f MiB at most", now, most)
}
