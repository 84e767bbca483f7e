// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountLoop mounts a new ext4 on a loop device, whose file is in memory, and returns the number of the device.
func mountLoop(t testing.TB, dir string) string {
	t.Helper()
	file := filepath.Join("/var", strings.ReplaceAll(dir, "/", "_")+".img")
	mustWrite(t, file, "")
	must(t, os.Truncate(file, 512<<20))
	return mountNew(t, file, dir, "-o", "loop")
}

// mountNew makes an ext filesystem on a disk or in a file, mounts it as ext4, and returns the number of its device.
func mountNew(t testing.TB, device, dir string, options ...string) string {
	t.Helper()
	_, err := output("mke2fs", "-F", "-b", "4096", device)
	must(t, err)
	must(t, os.MkdirAll(dir, 0o755))
	_, err = output("mount", append([]string{"-t", "ext4", device, dir}, options...)...)
	must(t, err)
	return numberOf(t, dir)
}

// numberOf returns the number of the device with a directory.
func numberOf(t testing.TB, dir string) string {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Stat(dir, &stat))
	return fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))
}

// aliases: a class names devices by the aliases rootfs and ephemeral. It limits the device of a container's root
// directory, and the device of the kubelet's directory with the emptyDirs. When the kubelet's directory is no longer
// on a device, the limits of this device are removed.
func aliases(t *testing.T, p *pod) {
	n := p.node
	const kubelet, emptyDir = "/var/lib/kubelet", "/var/lib/kubelet/pods/uid-shared/volumes/kubernetes.io~empty-dir/scratch"
	useClassFile(t, strings.Replace(classFile, "slower: [{Devices: [/dev/vda], ThrottleReadBps: 700k}]",
		"slower: [{Devices: [rootfs], ThrottleWriteBps: 3M}, {Devices: [ephemeral], ThrottleWriteBps: 2M, ThrottleReadBps: 1M}]", 1))
	eventually(t, "the class is degraded without the directory", func() error {
		return n.degraded(t, blockio, "slower", "ephemeral matches no block device")
	})

	scratch := mountLoop(t, kubelet)
	must(t, os.MkdirAll(emptyDir, 0o755))
	c := p.run(t, spec{name: "reloaded", mounts: []*cri.Mount{{ContainerPath: "/scratch", HostPath: emptyDir}}})
	layers := numberOf(t, "/var/lib/containerd")
	want := ioLimits{layers: {"wbps": "3000000"}, scratch: {"rbps": "1000000", "wbps": "2000000"}}
	eventually(t, "both disks are throttled", func() error { return n.hasLimits(t, c.cgroup(), want) })
	for _, l := range []limit{
		{"write", "/layer", 3e6}, {"fsync", "/layer", 3e6}, {"write", "/scratch/file", 2e6}, {"fsync", "/scratch/file", 2e6}, {"read", "/scratch/file", 1e6},
	} {
		l.measure(t, c, 4)
	}

	must(t, unix.Unmount(kubelet, unix.MNT_DETACH))
	eventually(t, "nothing limits the disk that the kubelet's directory was on", func() error {
		return n.hasLimits(t, c.cgroup(), ioLimits{layers: {"wbps": "3000000"}})
	})

	must(t, os.RemoveAll(kubelet))
	c.remove(t) // before the cleanup writes classFile, in which the container's class has other limits
}
