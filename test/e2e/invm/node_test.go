// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeSocket = "/run/containerd/containerd.sock"
	nriSocket     = "/run/nri/nri.sock"
	configDir     = "/etc/qos-nri-plugin"
	resctrlRoot   = "/sys/fs/resctrl"
	image         = "localhost/workload:1"
)

// node is the machine under test: this VM with containerd on it, and the plugin when a test has started it.
type node struct {
	runtime    cri.RuntimeServiceClient
	containerd *process
	plugin     *process
	cgroupV2   bool
	// foreign is what is foreign in resctrl; nil is unknown.
	foreign map[string]string
	amd     bool
}

// startNode starts containerd and imports the tests' image; both end with t.
func startNode(t *testing.T) *node {
	n := &node{cgroupV2: cgroupV2(t), amd: isAMD(t)}
	must(t, os.MkdirAll("/etc/containerd", 0o755))
	mustWrite(t, "/etc/containerd/config.toml", fmt.Sprintf(containerdConfig, bySystemd()))
	connection, err := grpc.NewClient("unix://"+runtimeSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { must(t, connection.Close()) })
	n.runtime = cri.NewRuntimeServiceClient(connection)

	n.startContainerd(t)
	t.Cleanup(func() { n.containerd.end(t, syscall.SIGTERM) })
	_, err = output("ctr", "-a", runtimeSocket, "-n", "k8s.io", "images", "import", "/share/image.tar")
	must(t, err)
	// The CRI gets the image by an event of containerd, a moment later.
	images := cri.NewImageServiceClient(connection)
	eventually(t, "the CRI has the image", func() error {
		found, err := images.ImageStatus(requestContext(t), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
		if err == nil && found.GetImage() == nil {
			err = errors.New("no such image yet")
		}
		return err
	})
	return n
}

func (n *node) startContainerd(t testing.TB) {
	t.Helper()
	n.containerd = start(t, "containerd", "--config", "/etc/containerd/config.toml")
	eventually(t, "containerd serves", func() error {
		if err := n.containerd.alive(); err != nil {
			t.Fatal(err)
		}
		_, err := n.runtime.Version(requestContext(t), &cri.VersionRequest{})
		return err
	})
}

const containerdConfig = `
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "localhost/workload:1"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
options.SystemdCgroup = %t
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "/run/nri/nri.sock"
# The emulated machine is slow; what comes too late would go on without the plugin.
plugin_registration_timeout = "60s"
plugin_request_timeout = "60s"
`

func cgroupV2(t testing.TB) bool {
	var mount unix.Statfs_t
	must(t, unix.Statfs("/sys/fs/cgroup", &mount))
	return mount.Type == unix.CGROUP2_SUPER_MAGIC
}

// ioCgroup is the directory with the io files of a cgroup.
func (n *node) ioCgroup(path string) string {
	if n.cgroupV2 {
		return filepath.Join("/sys/fs/cgroup", path)
	}
	return filepath.Join("/sys/fs/cgroup/blkio", path)
}

// processes are those of a cgroup.
func (n *node) processes(t testing.TB, path string) []string {
	t.Helper()
	return strings.Fields(mustRead(t, filepath.Join(n.ioCgroup(path), "cgroup.procs")))
}
