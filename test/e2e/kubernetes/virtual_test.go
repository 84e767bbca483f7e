// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/test/invariant"
)

// virtualNodes is the prefix of the names of tests whose node is a VM.
const virtualNodes = "TestVirtualNode"

// rdtClasses extends the class file with two resources. The resource for RDT has classes of the same names, and monitors
// all containers. The other resource is for the block I/O of pods. %d is the capacity of the RDT class gold, and %s its
// memory bandwidth.
const rdtClasses = `- name: k8s.io/rdt
  defaultClass: standard
  classes:
  - {name: gold, capacity: %d}
  - {name: silver, capacity: 1}
  - {name: slow}
  - {name: standard}
  rdt:
    monitoring: containers
    partitions:
      exclusive:
        l3Allocation: "50%%"
        mbAllocation: ["100%%", "10000MBps"]
        classes: {gold: {l3Allocation: "100%%", mbAllocation: [%s]}}
      shared:
        l3Allocation: "50%%"
        mbAllocation: ["50%%", "5000MBps"]
        classes:
          silver: {l3Allocation: "100%%", mbAllocation: ["100%%", "5000MBps"]}
          slow: {l3Allocation: "50%%", mbAllocation: ["40%%", "2000MBps"]}
          standard: {l3Allocation: "100%%", mbAllocation: ["80%%", "4000MBps"]}
- name: qos.noderesource.dev/pod-blockio
  scope: pod
  classes: [{name: slow, capacity: 1}]
  blockio:
    Classes:
      slow: [{Devices: [/dev/vda], ThrottleReadBps: 300M}]
`

// fullBandwidth is the initial bandwidth of gold.
const fullBandwidth = `"100%", "10000MBps"`

// virtualClasses returns the class file of a VM.
func virtualClasses(capacity int, bandwidth string) string {
	return fmt.Sprintf(classes+rdtClasses, capacity, capacity, bandwidth) + linuxClasses
}

// TestVirtualNodeIntel uses a node with RDT, cgroup v2 and the cgroup driver cgroupfs. After its reboot, bandwidth is in MBps.
func TestVirtualNodeIntel(t *testing.T) {
	v := &vm{vendor: "intel"}
	n := joined(t, v)
	d := n.installVirtual(t)
	for _, c := range []virtualCase{
		{"capacity is in the node's status", func(t *testing.T) { capacityIsPublished(t, n) }},
		{"kubectl qos top usage shows what containers use", func(t *testing.T) { usageIsMeasured(t, n) }},
		{"kubectl qos set moves a running container into another class", func(t *testing.T) { setMoves(t, n) }},
		{"kubectl qos shows the group of another program", func(t *testing.T) { showsForeignGroup(t, n, v) }},
		{"a changed ConfigMap changes the limits of running containers", func(t *testing.T) { configMapReaches(t, n, d, "50") }},
		{"a class of pod scope limits the pod's cgroup", func(t *testing.T) { podHasAClass(t, n) }},
		{"Prometheus has data for each panel of the dashboard", func(t *testing.T) { monitored(t, n) }},
		{"the values of a class replace those of the kubelet, with MemoryQoS", func(t *testing.T) { classWinsOverKubelet(t, n) }},
		{"a changed class of a claim changes the limits of the volume while a pod uses it", func(t *testing.T) { volumesFollowClaims(t, n, v) }},
		{"the status of a claim is that of its limits", func(t *testing.T) { claimHasStatus(t, n, v) }},
		{"policies turn requests by annotation into extended resources", func(t *testing.T) { annotationsBecomeResources(t, n) }},
		{"restarts leave pods in their classes", func(t *testing.T) { restartsOfVirtual(t, n, d) }},
		{"after a reboot pods come back in their classes", func(t *testing.T) { reboots(t, n, v, d) }},
	} {
		c.run(t, n)
	}
}

// TestVirtualNodeAMD uses a node with AMD's kind of RDT, with systemd and its cgroup driver.
func TestVirtualNodeAMD(t *testing.T) {
	skipNightly(t)
	n := joined(t, &vm{vendor: "amd", init: "systemd"})
	d := n.installVirtual(t)
	for _, c := range []virtualCase{
		{"the scheduler counts classes", func(t *testing.T) { schedulerCounts(t, n) }},
		{"kubectl qos top usage shows what containers use", func(t *testing.T) { usageIsMeasured(t, n) }},
		{"the values of a class replace those of the kubelet, without MemoryQoS", func(t *testing.T) { classWinsOverKubelet(t, n) }},
		{"a changed ConfigMap changes the limits of running containers", func(t *testing.T) { configMapReaches(t, n, d, "40") }},
	} {
		c.run(t, n)
	}
}

// virtualCase is a case after which the invariants are checked.
type virtualCase struct {
	name string
	test func(t *testing.T)
}

func (c virtualCase) run(t *testing.T, n *node) {
	t.Run(c.name, func(t *testing.T) {
		c.test(t)
		n.holds(t) // while its pods run
	})
}

// joined returns the cluster with a VM as its node, until the test ends.
func joined(t *testing.T, v *vm) *node {
	t.Helper()
	n := cluster(t)
	if n.machine != nil {
		n.leave(t)
	}
	n.joinVirtual(t, v)
	return n
}

// joinVirtual joins the node to the cluster, until the test ends. The programs of the node run in a VM. If the test fails, joinVirtual
// prints logs before the node leaves.
func (n *node) joinVirtual(t *testing.T, v *vm) {
	t.Helper()
	v.dir, v.rig, v.bin, v.logs = filepath.Join(n.dir, v.vendor+v.init), n.dir, n.bin, n.logs
	t.Cleanup(func() { n.leave(t) })
	n.reportFailure(t)
	n.join(t, v)
}

// ownClassFile is a kustomization that installs the DaemonSets with another class file. %s is the kustomization that it changes.
const ownClassFile = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
configMapGenerator:
- {name: qos-classes, namespace: qos-system, behavior: replace, files: [classes.yaml]}
patches:
- target: {kind: DaemonSet, name: qos-publisher}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --follow-claims}
`

// installVirtual installs the DaemonSets with the class file of a VM.
func (n *node) installVirtual(t *testing.T) *daemonSet {
	t.Helper()
	dir := n.overlay(t, "deploy", deploy+"kubernetes-follow-annotations", ownClassFile)
	n.write(t, "deploy/classes.yaml", virtualClasses(2, fullBandwidth))

	d := n.installDaemonSet(t, dir)
	n.offered(t, "gold", "2", "2")
	return d
}

// setMoves changes the class of a running container with "kubectl qos set", and checks that a change to a full class is
// refused.
func setMoves(t *testing.T, n *node) {
	n.runPods(t, pod{name: "moves"}, pod{name: "has-silver", classes: n.asks("silver")})
	n.inClass(t, "moves", "standard")
	n.holders(t, "silver", "default/has-silver/main")
	same := n.sameContainers(t, "moves")

	n.qos(t, "set", "moves", "-c", "main", "rdt=gold", "blockio=gold", within)
	n.inClass(t, "moves", "gold")
	n.condition(t, "moves", "rdt gold")
	n.holders(t, "gold", "default/moves/main")
	wantRefusal(t, "a change to a full class", "is full")(n.tryQOS("", "set", "moves", "-c", "main", "rdt=silver", "blockio=silver"))
	n.inClass(t, "moves", "gold")
	same("a change of class")
}

// showsForeignGroup moves a container, which requests the system default, into a resctrl group that the plugin does not manage.
func showsForeignGroup(t *testing.T, n *node, v *vm) {
	n.runPods(t, pod{name: "elsewhere", annotations: map[string]string{"container.qos.noderesource.dev/main": "rdt="}})
	dir, err := v.cgroup(n.containerID("elsewhere"))
	must(t, err)
	const group = "/sys/fs/resctrl/batch"
	v.mustRun(t, "sh", "-c", "mkdir "+group+" && for p in $(cat "+cgroupRoot+dir+"/cgroup.procs); do echo $p >"+group+"/tasks || exit; done")
	t.Cleanup(func() { v.mustRun(t, "rmdir", group) })

	until(t, "kubectl qos shows the group", func() (bool, string) {
		output, err := n.tryQOS("", "pods", "elsewhere")
		return err == nil && strings.Contains(output, "<resctrl group batch>"), output
	})
}

// configMapReaches changes the class gold in the ConfigMap: another capacity, and half of the memory bandwidth. `want` is the bandwidth that
// the kernel must then have: a percentage on Intel, and an amount in units of 1/8 GB/s on AMD.
func configMapReaches(t *testing.T, n *node, d *daemonSet, want string) {
	n.runPods(t, pod{name: "in-gold", classes: n.asks("gold")})
	n.inClass(t, "in-gold", "gold")
	same := n.sameContainers(t, "in-gold")

	d.setClasses(t, virtualClasses(3, `"50%"`))
	n.offered(t, "gold", "3", "3")
	n.bandwidth(t, "gold", want)
	n.inClass(t, "in-gold", "gold")
	same("a change of the class file")

	d.setClasses(t, virtualClasses(2, fullBandwidth))
	n.offered(t, "gold", "2", "2")
}

// bandwidth waits until the kernel limits a class to a memory bandwidth.
func (n *node) bandwidth(t *testing.T, class, want string) {
	t.Helper()
	until(t, "the bandwidth of "+class+" is "+want, func() (bool, string) {
		kernel, err := n.machine.kernel(invariant.Live{})
		if err != nil {
			return false, err.Error()
		}
		schemata := kernel.Groups["qos-"+class].Schemata
		for line := range strings.Lines(schemata) {
			if values, found := strings.CutPrefix(strings.ReplaceAll(strings.TrimSpace(line), " ", ""), "MB:0="); found {
				return values == want, schemata
			}
		}
		return false, schemata
	})
}

// podHasAClass runs a pod whose containers share the limits of a class of pod scope.
func podHasAClass(t *testing.T, n *node) {
	n.runPods(t, pod{name: "limited", annotations: map[string]string{podAnnotation: "qos.noderesource.dev/pod-blockio=slow"}})
	n.condition(t, "limited", "pod-blockio slow")
	n.limited(t, "limited", "rbps=300000000 ")
	n.inClass(t, "limited", "standard")
}

// annotationsBecomeResources installs the policies, and checks that the scheduler counts pods that request a class by annotation.
func annotationsBecomeResources(t *testing.T, n *node) {
	n.kubectl(t, "apply", "-k", policies)
	t.Cleanup(func() { n.kubectl(t, "delete", "-k", policies) })
	untilSeen(t, "policies act", func() string {
		output, _ := n.send(`{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: default, annotations: {container.qos.noderesource.dev/main: rdt=gold}},
  spec: {containers: [{name: main, image: none}]}}`)
		return output
	}, `"qos.noderesource.dev/rdt.gold":"1"`, requiredAnnotation)

	asks := map[string]string{"container.qos.noderesource.dev/main": "rdt=silver,blockio=silver"}
	n.runPods(t, pod{name: "by-annotation", annotations: asks})
	n.inClass(t, "by-annotation", "silver")
	n.condition(t, "by-annotation", "rdt silver (container)")
	n.replaces(t, pod{name: "by-annotation-too", annotations: asks}, "by-annotation", "Insufficient qos.noderesource.dev/")
	n.inClass(t, "by-annotation-too", "silver")
}

// restartsOfVirtual ends one program after another while pods run.
func restartsOfVirtual(t *testing.T, n *node, d *daemonSet) {
	n.runPods(t, pod{name: "stays", classes: n.asks("gold")}, pod{name: "stays-too"})
	same := n.sameContainers(t, "stays", "stays-too")
	for _, restart := range []struct {
		name string
		do   func()
	}{
		{"kubelet", func() { n.restartKubelet(t) }},
		{"containerd", func() {
			n.containerd.mustEnd(t, syscall.SIGTERM)
			n.containerd.mustStart(t)
		}},
		{"plugin", func() { d.killPlugin(t) }},
	} {
		restart.do()
		d.back(t)
		n.offered(t, "gold", "2", "2")
		n.inClass(t, "stays", "gold")
		n.inClass(t, "stays-too", "standard")
		same("a restart of " + restart.name)
	}

	n.runPods(t, pod{name: "comes", classes: n.asks("gold")})
	n.inClass(t, "comes", "gold")
}

const fromReplicaSet = `apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: comes-back, namespace: default}
spec:
  selector: {matchLabels: {app: comes-back}}
  template:
    metadata: {labels: {app: comes-back}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: localhost/workload:1
        imagePullPolicy: Never
        resources: {limits: {qos.noderesource.dev/rdt.gold: 1, qos.noderesource.dev/blockio.gold: 1}}
`

// reboots switches the node off and on. The kubelet restarts a pod without a request, and a pod that requests a class by annotation and
// requires the plugin. A pod with an extended resource fails, because the kubelet admits the pod before the shim has registered the class.
// The ReplicaSet then creates another pod: see "Start order" in docs/kubernetes.md.
func reboots(t *testing.T, n *node, v *vm, d *daemonSet) {
	n.apply(t, fromReplicaSet)
	t.Cleanup(func() { n.kubectl(t, "delete", "replicaset", "comes-back", "--cascade=foreground", within) })
	annotated := staying["slow"]
	n.runPods(t, pod{name: "plain"}, annotated)
	uid := n.of(annotated.name, "{.metadata.uid}")
	n.inClass(t, n.replica(t), "gold")
	bootID := v.mustRun(t, "cat", "/proc/sys/kernel/random/boot_id")

	v.off(t)
	v.resctrl = "mba_MBps"
	v.boot(t)
	n.containerd.mustStart(t)
	n.awaitContainerd(t) // a kubelet without a runtime exits; on usual nodes, systemd restarts it
	n.kubelet.mustStart(t)
	if again := v.mustRun(t, "cat", "/proc/sys/kernel/random/boot_id"); again == bootID {
		t.Fatal("the VM has not booted again")
	}

	until(t, "the API has the new boot", func() (bool, string) {
		seen, _ := n.try("get", "node", n.name, "-o", "jsonpath={.status.nodeInfo.bootID}")
		return seen != "" && seen != strings.TrimSpace(bootID), seen
	})

	d.back(t)
	n.offered(t, "gold", "2", "2")
	n.inClass(t, "plain", "standard")
	n.inClass(t, n.replica(t), "gold")
	n.bandwidth(t, "gold", "10000")
	n.inClasses(t, annotated.name, "slow", "standard")
	n.running(t, "plain", annotated.name)
	if got := n.of(annotated.name, "{.metadata.uid}"); got != uid {
		t.Errorf("the pod that requires the plugin was replaced: its UID was %s and is %s", uid, got)
	}

	// Pods that the kubelet has refused stay in the API.
	refused := n.kubectl(t, "get", "pods", "--field-selector=status.phase=Failed", "-o", "jsonpath={.items[*].status.reason}")
	if !strings.Contains(refused, "UnexpectedAdmissionError") {
		t.Errorf("the pods that failed have the reasons %q; docs/kubernetes.md names UnexpectedAdmissionError", refused)
	}

	n.kubectl(t, "delete", "pods", "--field-selector=status.phase=Failed")
}

// replica waits until the ReplicaSet has a pod that runs, and returns its name.
func (n *node) replica(t *testing.T) string {
	t.Helper()
	var name string
	until(t, "the ReplicaSet has a pod that is ready", func() (bool, string) {
		output, _ := n.try("get", "pods", "-l", "app=comes-back", "-o",
			`jsonpath={range .items[*]}{.metadata.name}/{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		lines := strings.Fields(output)
		ready := slices.IndexFunc(lines, func(line string) bool { return strings.HasSuffix(line, "/True") })
		if ready < 0 {
			return false, output
		}
		name = strings.TrimSuffix(lines[ready], "/True")
		return true, ""
	})

	return name
}
