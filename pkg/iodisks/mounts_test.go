// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package iodisks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// These are lines of mountinfo: of a layer and the root of a container, and of a volume.
const (
	layerOf     = "99 28 0:50 / %s rw - overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=%s,workdir=/w"
	rootOf      = "97 28 %[2]s/run/containerd/io.containerd.runtime.v2.task/k8s.io/%[1]s/rootfs rw - %[3]s rw"
	volumeOf    = "98 28 0:51 / %s/pods/6f0c/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw"
	someKubelet = "/var/lib/kubelet"
)

func mounted(lines ...string) *simcgroup.Machine {
	return iotest.Mount(iotest.AddDisks(simcgroup.New()), lines...)
}

// with makes a directory on a machine.
func with(m *simcgroup.Machine, name string) *simcgroup.Machine {
	m.AddFile(name+"/x", "")
	return m
}

// TestAliasesAreTheDisksOfTheRuntimeAndOfTheKubelet: rootfs is for the runtime, and ephemeral is for the kubelet. The root filesystem is on
// sda1. The device numbers 8:16, 253:0 and 7:0 are those of sdb, dm-0 and loop0. If no mount of a pod shows the directory, the usual one
// counts.
func TestAliasesAreTheDisksOfTheRuntimeAndOfTheKubelet(t *testing.T) {
	for _, test := range []struct {
		name, alias string
		machine     *simcgroup.Machine
		want        string // the disks, or the reason why the alias is ignored
	}{
		{"containerd, on the disk of the root", "rootfs",
			mounted(fmt.Sprintf(layerOf, "/run/x", "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs")), "sda (8:0)"},
		{"containerd, on a disk of its own", "rootfs",
			mounted("40 28 8:16 / /data rw - xfs /dev/sdb rw",
				fmt.Sprintf(layerOf, "/run/x", "/data/k3s/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs")), "sdb (8:16)"},
		{"CRI-O, on device mapper", "rootfs",
			mounted("40 28 253:0 / /var/lib/containers rw - xfs /dev/mapper/data rw",
				fmt.Sprintf(layerOf, "/var/lib/containers/storage/overlay/ab/merged", "/var/lib/containers/storage/overlay/ab/diff")), "dm-0 (253:0)"},
		{"the overlay of a user is no layer of a container", "rootfs",
			with(mounted("40 28 8:16 / /home rw - ext4 /dev/sdb rw", fmt.Sprintf(layerOf, "/merged", "/home/upper")), "/var/lib/containerd"), "sda (8:0)"},
		{"a usual directory that is a symbolic link", "rootfs",
			func() *simcgroup.Machine {
				m := mounted("40 28 8:16 / /data rw - ext4 /dev/sdb rw")
				m.AddSymlink("/var/lib/containers/storage", "/data/storage")
				m.AddFile("/data/storage/x", "")
				return m
			}(), "sdb (8:16)"},
		{"the kubelet's directory, hidden by a second mount", "ephemeral",
			mounted("40 28 8:16 / /kubelet rw - ext4 /dev/sdb rw", "41 40 7:0 / /kubelet rw - ext4 /dev/loop0 rw", fmt.Sprintf(volumeOf, "/kubelet")),
			"loop0 (7:0)"},
		{"a directory with a longer name is another one", "ephemeral",
			mounted("40 28 8:16 / /var/lib/kube rw - ext4 /dev/sdb rw", fmt.Sprintf(volumeOf, someKubelet)), "sda (8:0)"},
		{"btrfs on two disks, beside another btrfs", "ephemeral",
			func() *simcgroup.Machine {
				m := mounted("40 28 0:60 /sub /var/lib/kubelet rw - btrfs /dev/mapper/data rw,subvol=/sub", fmt.Sprintf(volumeOf, someKubelet))
				// The source of the mount, dm-0, is a disk of the filesystem bb. So loop0, a disk of aa, does not count.
				m.AddSymlink("/dev/mapper/data", "../dm-0")
				m.AddSymlink("/sys/fs/btrfs/aa/devices/loop0", "../../../../devices/virtual/block/loop0")
				m.AddSymlink("/sys/fs/btrfs/bb/devices/dm-0", "../../../../devices/virtual/block/dm-0")
				m.AddSymlink("/sys/fs/btrfs/bb/devices/sda1", "../../../../devices/virtual/block/sda/sda1")
				return m
			}(), "dm-0 (253:0), sda (8:0)"},
		{"a device for each container", "rootfs",
			with(mounted(fmt.Sprintf(rootOf, "1", "253:0 / ", "ext4 /dev/mapper/snap-1"), fmt.Sprintf(rootOf, "2", "7:0 / ", "ext4 /dev/loop0")), "/var/lib/containerd"), "rootfs is ignored: the root directories of containers are on ext4: each container has a device of its own"},
		{"ZFS", "rootfs",
			with(mounted(fmt.Sprintf(rootOf, "1", "0:78 / ", "zfs tank/1"), fmt.Sprintf(rootOf, "2", "0:79 / ", "zfs tank/2")), "/var/lib/containerd"), "rootfs is ignored: the root directories of containers are on zfs: this filesystem has no block device"},
		{"directories of a disk", "rootfs",
			mounted(fmt.Sprintf(rootOf, "1", "8:16 /containerd/io.containerd.snapshotter.v1.native/snapshots/1 ", "xfs /dev/sdb")), "sdb (8:16)"},
		{"no mount of a pod, and no usual directory", "rootfs", mounted(),
			"rootfs is ignored: the directory is unknown: no mount of a running pod shows it, and there is no /var/lib/containerd or /var/lib/containers/storage"},
		{"tmpfs", "ephemeral", mounted("40 28 0:40 / /var/lib/kubelet rw - tmpfs tmpfs rw", fmt.Sprintf(volumeOf, someKubelet)),
			"ephemeral is ignored: /var/lib/kubelet/pods is on tmpfs: this filesystem has no block device"},
		{"NFS", "ephemeral", mounted("40 28 0:40 / /var/lib/kubelet rw - nfs4 server:/k rw", fmt.Sprintf(volumeOf, someKubelet)),
			"ephemeral is ignored: /var/lib/kubelet/pods is on nfs4: this filesystem has no block device"},
		{"FUSE on a disk", "ephemeral", mounted("40 28 8:16 / /var/lib/kubelet rw - fuseblk /dev/sdb rw", fmt.Sprintf(volumeOf, someKubelet)),
			"ephemeral is ignored: /var/lib/kubelet/pods is on fuseblk: this filesystem has no block device"},
	} {
		t.Run(test.alias+": "+test.name, func(t *testing.T) {
			found, err := NewNode(test.machine).Match(test.alias)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Concat(found.Ignored, found.Partitions)
			for _, disk := range found.Disks {
				got = append(got, disk.String())
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzAliases(f *testing.F) {
	for _, line := range []string{iotest.RootMount, fmt.Sprintf(layerOf, "/x", "/var/lib/containers/storage/overlay/ab/diff"), fmt.Sprintf(volumeOf, someKubelet), "bad"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, mountinfo string) {
		m := iotest.AddDisks(simcgroup.New())
		m.AddFile("/proc/1/mountinfo", mountinfo)
		for _, alias := range []string{AliasRootFS, AliasEphemeral} {
			found, err := NewNode(m).Match(alias)
			if err == nil && len(found.Disks) == 0 && len(found.Ignored) == 0 {
				t.Errorf("%s matches no disk, and no reason is given", alias)
			}
		}
	})
}
