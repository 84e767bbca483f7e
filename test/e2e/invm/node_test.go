// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	configDir   = "/etc/qos-nri-plugin"
	resctrlRoot = "/sys/fs/resctrl"
)

// node is the machine under test: this VM with a container runtime on it, and the plugin when a test has started it.
type node struct {
	kind           *containerRuntime
	runtime        cri.RuntimeServiceClient
	runtimeProcess *process
	handler        string // runtime handler of new pods; "" is runc
	plugin         *process
	cgroupV2       bool
	// foreign has the content of the foreign groups in resctrl. It is nil if the content is unknown.
	foreign map[string]string
	amd     bool
}

// startNode starts the runtime and imports the tests' image. The runtime ends at the end of the test.
func startNode(t *testing.T) *node {
	n := &node{kind: runtimeHere(t), cgroupV2: cgroupV2(t), amd: isAMD(t)}
	n.kind.configure(t, "", "")
	if n.machine() == intelV2 && !bySystemd() { // the root directories of the containers are on a disk of their own
		mountLoop(t, "/var/lib/containerd")
	}

	if n.cgroupV2 && !bySystemd() { // CRI-O requires controllers that systemd would have enabled
		mustWrite(t, "/sys/fs/cgroup/cgroup.subtree_control", "+cpu +cpuset +memory +io +pids")
	}

	connection, err := grpc.NewClient("unix://"+n.kind.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, connection.Close()) })
	n.runtime = cri.NewRuntimeServiceClient(connection)

	n.startRuntime(t)
	t.Cleanup(func() { n.stopRuntime(t) })
	n.importImage(t, cri.NewImageServiceClient(connection))
	return n
}

func cgroupV2(t testing.TB) bool {
	var mount unix.Statfs_t
	must(t, unix.Statfs("/sys/fs/cgroup", &mount))
	return mount.Type == unix.CGROUP2_SUPER_MAGIC
}

// ioCgroup returns the directory that has the io files of a cgroup.
func (n *node) ioCgroup(path string) string {
	if n.cgroupV2 {
		return filepath.Join("/sys/fs/cgroup", path)
	}
	return filepath.Join("/sys/fs/cgroup/blkio", path)
}

// processes returns the IDs of the processes in a cgroup.
func (n *node) processes(t testing.TB, path string) []string {
	t.Helper()
	return strings.Fields(mustRead(t, filepath.Join(n.ioCgroup(path), "cgroup.procs")))
}
