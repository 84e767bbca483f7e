// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const (
	workloadImage    = "localhost/workload:1"
	containerdSocket = "/run/containerd/containerd.sock"
	staticPods       = "/etc/kubernetes/manifests"
)

// theNode is the first node of the cluster. Each process has only one cluster.
var theNode *node

// node is a node and its cluster.
type node struct {
	address
	dir, bin, logs      string
	cluster             *controlPlane // nil before it is started
	machine             machine       // of the node; nil before it has joined the cluster
	containerd, kubelet program
}

func newNode(dir string) *node {
	return &node{address: addresses[0], dir: dir, bin: filepath.Join(dir, "bin"), logs: filepath.Join(dir, "logs")}
}

// another returns another node of the cluster, which has not joined it yet.
func (n *node) another(t *testing.T, address address) *node {
	t.Helper()
	another := &node{address: address, dir: n.dir, bin: n.bin, logs: filepath.Join(n.logs, address.name), cluster: n.cluster}
	must(t, os.MkdirAll(another.logs, 0o755))
	return another
}

// reportFailure prints logs at the end of a failed test.
func (n *node) reportFailure(t *testing.T) {
	t.Helper()
	// Without -artifacts, ArtifactDir registers a cleanup that removes the directory. Cleanups run in reverse order, so the
	// directory is removed after the report.
	t.ArtifactDir()
	t.Cleanup(func() {
		if t.Failed() {
			n.report(t)
		}
	})
}

// here returns the machine on which the tests run, so that it can be the node.
func (n *node) here() machine {
	return &local{bin: n.bin, logs: n.logs, groups: newCgroups(filepath.Base(n.dir))}
}

func (n *node) program(name string) string { return filepath.Join(n.bin, name) }

// ready returns the cluster with this machine as its node. The first call starts both. If the test fails, it prints
// logs.
func ready(t *testing.T) *node {
	t.Helper()
	n := cluster(t)
	n.reportFailure(t)
	if n.machine == nil {
		n.join(t, n.here())
	}
	return n
}

// cluster returns the cluster, which may have no node yet. The first call starts it.
func cluster(t *testing.T) *node {
	t.Helper()
	if theNode == nil {
		t.Skip("needs root, because this machine becomes a node of a cluster")
	}
	if theNode.cluster == nil {
		theNode.start(t)
	}
	return theNode
}

func (n *node) start(t *testing.T) {
	t.Helper()
	must(t, os.MkdirAll(n.logs, 0o755))
	cluster, err := n.newControlPlane()
	must(t, err)
	n.cluster = cluster
	cluster.etcd.mustStart(t)
	cluster.server.mustStart(t)
	n.awaitServer(t)
	cluster.controllers.mustStart(t)
	cluster.scheduler.mustStart(t)
}

// join starts containerd and the kubelet on a machine, so that the machine becomes this node of the cluster.
func (n *node) join(t *testing.T, machine machine) {
	t.Helper()
	n.machine = machine
	machine.begin(t, n)
	n.startContainerd(t)
	n.kubelet = machine.program("kubelet", machine.path("kubelet"), "--config", n.write(t, n.name+"/kubelet.yaml", n.kubeletConfig()),
		"--kubeconfig", n.cluster.kubeconfig(n.name), "--hostname-override", n.name, "--node-ip", n.ip, "--housekeeping-interval=1m", "--v=2")
	n.kubelet.mustStart(t)
	n.awaitNode(t)
}

// leave takes the node's machine out of the cluster, with all pods.
func (n *node) leave(t *testing.T) {
	t.Helper()
	n.machine.end(t, n)
	n.machine = nil
	n.kubectl(t, "delete", "pods", "--all", "--all-namespaces", "--force", "--grace-period=0")
	n.kubectl(t, "delete", "node", n.name, "--ignore-not-found")
}

// awaitNode waits until pods can run on the node.
func (n *node) awaitNode(t *testing.T) {
	t.Helper()
	n.awaitField(t, "the node is ready", "True", `{.status.conditions[?(@.type=="Ready")].status} {.spec.taints}`, "node", n.name)
	untilDone(t, "pods can be made", func() (string, error) { return n.try("get", "serviceaccount", "default") })
}

func (n *node) startContainerd(t *testing.T) {
	t.Helper()
	n.write(t, n.name+"/10-test.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"cni.sh","node":%q,"pods":%q}]}`, n.ip, n.pods))
	n.containerd = n.machine.program("containerd", n.machine.path("containerd"), "--config", n.write(t, n.name+"/containerd.toml", n.containerdConfig()))
	n.containerd.mustStart(t)
	n.awaitContainerd(t)
}

func (n *node) awaitContainerd(t *testing.T) {
	t.Helper()
	untilDone(t, "containerd answers", func() (string, error) { return n.ctr("version") })
}

func (n *node) ctr(args ...string) (string, error) {
	return n.machine.run(append([]string{n.machine.path("ctr"), "--address", containerdSocket}, args...)...)
}

func (n *node) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(n.dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// containerdConfig returns the usual configuration of containerd, without the limits that containerd can set only with all privileges.
func (n *node) containerdConfig() string {
	settings := n.machine.node()
	return fmt.Sprintf(`version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
tolerate_missing_hugetlb_controller = true
disable_hugetlb_controller = true
restrict_oom_score_adj = true
stats_collect_period = "1m"
[timeouts]
%s
[plugins."io.containerd.nri.v1.nri"]
%s
[plugins."io.containerd.nri.v1.nri".default_validator]
enable = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q
use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
runtime_path = %q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = %q
SystemdCgroup = %t
`, workloadImage, settings.timeouts, settings.nri, settings.cni, filepath.Join(n.dir, n.name), n.machine.path("containerd-shim-runc-v2"), settings.ociRuntime, settings.cgroupDriver == "systemd")
}

func (n *node) kubeletConfig() string {
	settings := n.machine.node()
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: %s
cgroupRoot: %s
enforceNodeAllocatable: [pods]
failSwapOn: false
makeIPTablesUtilChains: false
containerRuntimeEndpoint: unix://%s
staticPodPath: %s
volumePluginDir: %s
resolvConf: ""
clusterDNS: [10.0.0.10]
address: %s
readOnlyPort: 0
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
localStorageCapacityIsolation: false
maxPods: 250
nodeStatusUpdateFrequency: %s
syncFrequency: %s
configMapAndSecretChangeDetectionStrategy: Watch
fileCheckFrequency: 2s
oomScoreAdj: 0
%s
`, settings.cgroupDriver, settings.cgroupRoot, containerdSocket, staticPods, filepath.Join(n.dir, "volume-plugins"), n.ip,
		n.cluster.file(n.name+".crt"), n.cluster.file(n.name+".key"), n.cluster.file("ca.crt"), settings.statusFrequency, settings.syncFrequency,
		settings.memory)
}

// stop ends the programs of the control plane one after another. Without stop, they would all be killed at the end of the namespaces.
func (n *node) stop() {
	if n.cluster == nil {
		return
	}
	for _, p := range []*process{n.cluster.scheduler, n.cluster.controllers, n.cluster.server, n.cluster.etcd} {
		if p != nil {
			_ = p.end(syscall.SIGKILL)
		}
	}
}

// report prints the last lines of the logs of plugin, shim, kubelet and containerd, and the node, pods and events in
// the API. With -artifacts, all logs are kept.
func (n *node) report(t *testing.T) {
	logs, err := filepath.Glob(n.logs + "/*.log")
	for _, log := range logs {
		data, readErr := os.ReadFile(log)
		name := filepath.Base(log)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(t.ArtifactDir(), n.name+"-"+name), data, 0o644))
		if slices.Contains([]string{"plugin.log", "shim.log", "kubelet.log", "containerd.log"}, name) {
			lines := strings.Split(strings.TrimSpace(string(data)), "\n")
			t.Logf("--- %s of %s\n%s", name, n.name, strings.Join(lines[max(0, len(lines)-25):], "\n"))
		}
	}
	if err != nil {
		t.Log(err)
	}

	for _, args := range [][]string{
		{"describe", "node", n.name}, {"get", "pods", "-A", "-o", "wide"}, {"get", "events", "-A"},
		{"-n", "qos-system", "logs", "--selector=app.kubernetes.io/name", "--all-containers", "--prefix", "--tail=25"},
	} {
		output, _ := n.try(args...)
		t.Logf("--- kubectl %s\n%s", strings.Join(args, " "), output)
	}
}

func TestTheNodeIsReady(t *testing.T) {
	n := ready(t)
	n.apply(t, `apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: default}
spec: {containers: [{name: main, image: "localhost/workload:1"}]}
`)
	n.awaitField(t, "the pod runs", "Running", "{.status.phase}", "pod", "plain")
}
