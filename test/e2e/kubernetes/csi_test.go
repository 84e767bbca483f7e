// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package kubernetes

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// csiDriver is the name of the driver in ../csidriver, csiVolumes the directory of the VM with its volumes, and csiManifests the file
// with claims and a pod.
const (
	csiDriver    = "test.qos.noderesource.dev"
	csiVolumes   = "/mnt/csi"
	csiManifests = "testdata/csi.yaml"
)

// startDriver starts the CSI driver in the VM, and its external-provisioner and external-resizer on this machine.
func (n *node) startDriver(t *testing.T, v *vm) {
	t.Helper()
	here := n.forward(t, n.serveVolumes(t, v, csiVolumes))
	n.startSidecar(t, "csi-provisioner", here)
	n.startSidecar(t, "csi-resizer", here)
}

// serveVolumes starts the CSI driver on the machine of a node, and returns the path of the driver's socket there. Each machine has its own
// data for a volume, in `dir`: a volume that the driver of another machine has created is empty on this machine. With the option "modify",
// the driver modifies volumes.
func (n *node) serveVolumes(t *testing.T, m machine, dir string, options ...string) (socket string) {
	t.Helper()
	driver := m.program("csidriver", append([]string{m.path("csidriver"), csiDriver, n.name, dir}, options...)...)
	driver.mustStart(t)
	t.Cleanup(func() { driver.mustEnd(t, syscall.SIGTERM) })
	socket = "/var/lib/kubelet/plugins/" + csiDriver + "/csi.sock"
	untilDone(t, "the driver listens", func() (string, error) { return m.run("test", "-S", socket) })
	return socket
}

// startSidecar starts a CSI sidecar of Kubernetes. The sidecar has the rights that the RBAC manifests of its release give
// to its service account.
func (n *node) startSidecar(t *testing.T, name, socket string) {
	t.Helper()
	rights := n.program(name + ".yaml")
	n.kubectl(t, "apply", "-f", rights)
	t.Cleanup(func() { n.kubectl(t, "delete", "-f", rights) })
	n.startProcess(t, name, n.program(name), "--csi-address="+socket, "--kubeconfig="+n.account(t, "default", name))
}

// forward returns the path of a socket of this machine whose connections go to a socket of the node.
func (n *node) forward(t *testing.T, socket string) string {
	t.Helper()
	path := filepath.Join(n.dir, "node-"+filepath.Base(socket))
	listener, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { must(t, listener.Close()) })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go n.tunnel(connection, socket)
		}
	}()

	return path
}

// tunnel copies data between a connection and a socket of the node until either side closes.
func (n *node) tunnel(connection net.Conn, socket string) {
	defer connection.Close()
	remote, err := n.machine.dial(context.Background(), socket)
	if err != nil {
		return // the client sees that the connection is closed
	}
	defer remote.Close()
	go func() {
		_, _ = io.Copy(remote, connection)
		_ = remote.Close()
	}()
	_, _ = io.Copy(connection, remote)
}

// useVolumes creates a pod with claims. Their volumes are deleted when the test ends.
func (n *node) useVolumes(t *testing.T, v *vm) {
	t.Helper()
	n.kubectl(t, "apply", "-f", csiManifests)
	t.Cleanup(func() {
		if output, err := n.try("delete", "-f", csiManifests, "--ignore-not-found", "--wait", within); err != nil {
			t.Errorf("delete: %v: %s", err, output)
		}
		n.noVolumes(t)
		if left := v.mustRun(t, "ls", csiVolumes); left != "" {
			t.Errorf("the driver still has the volumes %s", left)
		}
	})

	n.running(t, "csi")
}

// loopDevice returns the numbers of the loop device of a claim's volume, as "major:minor".
func (n *node) loopDevice(t *testing.T, v *vm, claim string) string {
	t.Helper()
	file := filepath.Join(csiVolumes, n.kubectl(t, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"))
	return strings.TrimSpace(v.mustRun(t, "sh", "-c", `cat "$(dirname "$(grep -lx `+file+` /sys/block/loop*/loop/backing_file)")/../dev"`))
}

// expand requests more capacity for claims of a pod. The kubelet expands a volume when it syncs the pod. A change of
// the pod makes the kubelet sync at once.
func (n *node) expand(t *testing.T, pod, capacity string, claims ...string) {
	t.Helper()
	for _, claim := range claims {
		n.kubectl(t, "patch", "pvc", claim, "-p", `{"spec":{"resources":{"requests":{"storage":"`+capacity+`"}}}}`)
	}
	for _, claim := range claims {
		n.awaitInField(t, "the node has to expand claim "+claim, "FileSystemResizePending", "{.status.conditions}", "pvc", claim)
	}
	n.kubectl(t, "annotate", "pod", pod, "test/capacity="+capacity)
}

// expanded waits until claims have the given capacity. They have it only after the driver has expanded the volumes and
// their filesystems.
func (n *node) expanded(t *testing.T, capacity string, claims ...string) {
	t.Helper()
	for _, claim := range claims {
		n.awaitField(t, "claim "+claim+" has "+capacity, capacity, "{.status.capacity.storage}", "pvc", claim)
	}
}
