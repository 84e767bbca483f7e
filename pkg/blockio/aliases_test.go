// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

package blockio

import (
	"fmt"
	"testing"

	"github.com/qos-nri/qos-nri-plugin/pkg/classes"
	"github.com/qos-nri/qos-nri-plugin/test/iotest"
	simcgroup "github.com/qos-nri/qos-nri-plugin/test/sim/cgroup"
)

// layerOf and volumeOf are lines of mountinfo for the root filesystem of a container and for a volume.
const (
	layerOf      = "99 28 0:50 / %s rw - overlay overlay rw,lowerdir=/l/1:/l/2,upperdir=%s,workdir=/w"
	volumeOf     = "98 28 0:51 / %s/pods/6f0c/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw"
	someKubelet  = "/var/lib/kubelet"
	aliasSection = "Classes: {all: [{Devices: [rootfs], ThrottleReadBps: 1M}, {Devices: [ephemeral], ThrottleWriteBps: 2M}]}"
)

// mounted returns a machine whose root filesystem is on a partition of sda, with more lines of mountinfo.
func mounted(lines ...string) *simcgroup.Machine {
	return iotest.Mount(disks(simcgroup.New()), lines...)
}

// TestAnAliasLimitsTheDiskThatItsDirectoryIsOnNow mounts another disk, and then a tmpfs, at the directory of the
// kubelet. The alias ephemeral stands for this directory. A tmpfs is on no disk, so the class is then degraded.
func TestAnAliasLimitsTheDiskThatItsDirectoryIsOnNow(t *testing.T) {
	m := mounted(fmt.Sprintf(layerOf, "/run/x", "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs"), fmt.Sprintf(volumeOf, someKubelet))
	f := newFixture(t, m, classes.PodScope).apply(aliasSection)
	// The class limits the reads of alias rootfs, which is always sda (8:0), and the writes of alias ephemeral.
	f.enforce(pod(), "", "all")
	const podMax = "/sys/fs/cgroup/kubepods/pod1/io.max"
	f.want(podMax, "8:0 rbps=1000000 wbps=2000000 riops=max wiops=max\n")

	m.Mount("40 28 8:16 / /var/lib/kubelet rw - ext4 /dev/sdb rw")
	f.wantDrift("device files, mounts or I/O schedulers changed")
	f.enforce(pod(), "all", "all")
	f.want(podMax, "8:16 rbps=max wbps=2000000 riops=max wiops=max\n8:0 rbps=1000000 wbps=max riops=max wiops=max\n")

	m.Unmount(someKubelet)
	m.Mount("40 28 0:40 / /var/lib/kubelet rw - tmpfs tmpfs rw")
	f.wantDrift("device files, mounts or I/O schedulers changed")
	f.enforce(pod(), "all", "all")
	f.want(podMax, "8:0 rbps=1000000 wbps=max riops=max wiops=max\n")
	if got, want := f.backend.Status().Degraded["all"], "pattern ephemeral matches no block device on this machine"; got != want {
		t.Errorf("degraded: %q, want %q", got, want)
	}
}

// TestALongLineOfMountinfoDoesNotMakeBlockIOUnavailable has a line of one pod with more than 80 kB.
func TestALongLineOfMountinfoDoesNotMakeBlockIOUnavailable(t *testing.T) {
	m := mounted()
	m.AddFile("/var/lib/containerd", "") // the directory of the alias rootfs
	f := newFixture(t, m, classes.ContainerScope).apply("Classes: {slow: [{Devices: [rootfs], ThrottleReadBps: 10M}]}")
	m.Mount(iotest.LongMount())
	f.wantNoDrift()
}
