// Copyright The qos-nri-plugin Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e_vm

package invm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// blockVolume is a volume on loop devices, whose files are in memory.
type blockVolume struct {
	path    string   // in the container
	dir     string   // on the machine; empty in mode Block
	device  string   // in mode Block
	devices []string // numbers of the devices that are limited
}

// filesystems: the class of a volume limits the I/O on each kind of filesystem, on partitions and device mapper, and in mode Block.
func filesystems(t *testing.T, shared *pod) {
	n := shared.node
	t.Cleanup(func() { writeClassFile(t, classFile) })
	n.offerVolumes(t, volumeResource)
	volumes := []blockVolume{onXFS(t), onBtrfs(t), onDeviceMapper(t), onPartition(t), inModeBlock(t)}

	var requests []string
	want := ioLimits{}
	s := spec{name: "main"}
	for _, v := range volumes {
		requests = append(requests, v.path+"=silver")
		for _, number := range v.devices {
			want[number] = map[string]string{"rbps": "2000000", "wbps": "1000000"}
		}
		if v.device != "" {
			s.devices = append(s.devices, v.device)
		} else {
			s.mounts = append(s.mounts, &cri.Mount{ContainerPath: v.path, HostPath: v.dir})
		}
	}

	p := n.runPod(t, "filesystems", map[string]string{"volumes.qos.noderesource.dev/main": strings.Join(requests, ",")})
	c := p.run(t, s)
	wantLimits(t, n.limits(t, p.cgroup()), want)
	for _, v := range volumes {
		n.wantVolume(t, p, "main", v.path, "silver")
	}

	measureAll(t, c, volumes, "write", 1e6)
	measureAll(t, c, volumes, "read", 2e6)
	measureAll(t, c, volumes, "fsync", 1e6)

	t.Run("limits change under load", func(t *testing.T) {
		var load sync.WaitGroup
		for _, v := range volumes {
			load.Go(func() { c.exec(t, "io", "write", v.file(), "8") })
		}
		n.offerVolumes(t, strings.Replace(volumeResource, "maxWriteBps: 1M", "maxWriteBps: 3M", 1))
		for number := range maps.Keys(want) {
			want[number] = map[string]string{"rbps": "2000000", "wbps": "3000000"}
		}
		eventually(t, "the new limits are in force", func() error { return n.hasLimits(t, p.cgroup(), want) })
		load.Wait()
		measureAll(t, c, volumes, "write", 3e6)
	})

	p.remove(t)
	for _, v := range volumes {
		if v.dir != "" {
			must(t, unix.Unmount(v.dir, 0))
		}
	}
}

// file returns the path that a container reads and writes: a file on the filesystem, or the device.
func (v blockVolume) file() string {
	if v.device != "" {
		return v.path
	}
	return v.path + "/file"
}

// measureAll measures the volumes at the same time, since each has limits of its own. The rate must be within 20% of
// the limit. If the rate is lower, it is measured again, because the host may be busy. The direction fsync has no lower
// bound, because the limit also applies to the metadata that the filesystem writes.
func measureAll(t *testing.T, c *container, volumes []blockVolume, direction string, want float64) {
	t.Helper()
	var measured sync.WaitGroup
	for _, v := range volumes {
		measured.Go(func() {
			eventually(t, fmt.Sprintf("%s of %s is as fast as its limit", direction, v.path), func() error {
				rate := limit{direction, v.file(), want}.measure(t, c, 4)
				if direction != "fsync" && rate < 0.8*want {
					return fmt.Errorf("%.3g B/s, want at least %.3g less 20%%", rate, want)
				}
				return nil
			})
		})
	}

	measured.Wait()
}

func onXFS(t *testing.T) blockVolume {
	device := loopDevice(t, "xfs", 320<<20)
	_, err := output("/sbin/mkfs.xfs", "-q", device)
	must(t, err)
	dir := mountAt(t, "xfs", device, "xfs")
	return blockVolume{path: "/xfs", dir: dir, devices: []string{deviceNumber(t, device)}}
}

// onBtrfs returns a btrfs on two disks, each of which has a copy of all data.
func onBtrfs(t *testing.T) blockVolume {
	one, two := loopDevice(t, "btrfs-one", 160<<20), loopDevice(t, "btrfs-two", 160<<20)
	_, err := output("/sbin/mkfs.btrfs", "-q", "-d", "raid1", "-m", "raid1", one, two)
	must(t, err)
	dir := mountAt(t, "btrfs", one, "btrfs", "-o", "device="+one+",device="+two)
	return blockVolume{path: "/btrfs", dir: dir, devices: []string{deviceNumber(t, one), deviceNumber(t, two)}}
}

// onDeviceMapper returns an ext4 on a linear mapping, as LVM makes it.
func onDeviceMapper(t *testing.T) blockVolume {
	const size = 64 << 20
	device := mapDisk(t, "volume", loopDevice(t, "dm", size), 0, size)
	return blockVolume{path: "/dm", dir: "/vols/dm", devices: []string{mountNew(t, device, "/vols/dm")}}
}

// mapDisk makes a logical volume of a part of a disk, until the test ends, and returns its path.
func mapDisk(t *testing.T, name, disk string, from, size int) string {
	t.Helper()
	t.Setenv("DM_DISABLE_UDEV", "1") // without udev, dmsetup itself makes the file in /dev/mapper
	_, err := output("/sbin/dmsetup", "create", name, "--table", fmt.Sprintf("0 %d linear %s %d", size/512, disk, from/512))
	must(t, err)
	t.Cleanup(func() {
		_, err := output("/sbin/dmsetup", "remove", "--retry", name)
		must(t, err)
	})
	return "/dev/mapper/" + name
}

// onPartition returns an ext4 on a partition. The kernel limits the whole disk.
func onPartition(t *testing.T) blockVolume {
	device := loopDevice(t, "partition", 80<<20)
	addPartition(t, device, 1<<20, 64<<20)
	mountNew(t, device+"p1", "/vols/partition")
	return blockVolume{path: "/partition", dir: "/vols/partition", devices: []string{deviceNumber(t, device)}}
}

func inModeBlock(t *testing.T) blockVolume {
	device := loopDevice(t, "block", 64<<20)
	return blockVolume{path: device, device: device, devices: []string{deviceNumber(t, device)}}
}

func mountAt(t *testing.T, name, device, filesystem string, options ...string) string {
	t.Helper()
	dir := filepath.Join("/vols", name)
	must(t, os.MkdirAll(dir, 0o755))
	_, err := output("mount", append([]string{"-t", filesystem, device, dir}, options...)...)
	must(t, err)
	return dir
}

// loopDevice attaches a new file to a loop device that can have partitions, until the test ends, and returns its path.
func loopDevice(t *testing.T, name string, size int64) string {
	t.Helper()
	file, err := os.OpenFile(filepath.Join("/var", name+".img"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	must(t, err)
	defer file.Close()
	must(t, file.Truncate(size))
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	defer control.Close()
	free, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	must(t, err)

	path := fmt.Sprint("/dev/loop", free)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer device.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_PARTSCAN}}
	must(t, unix.IoctlLoopConfigure(int(device.Fd()), &config))
	t.Cleanup(func() { detach(t, path) })
	return path
}

func detach(t *testing.T, path string) {
	device, err := os.Open(path)
	must(t, err)
	defer device.Close()
	must(t, unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0))
}

// addPartition adds the first partition of a disk, without a partition table (linux/blkpg.h).
func addPartition(t *testing.T, disk string, start, length int64) {
	t.Helper()
	const addPartition = 1
	partition := struct {
		start, length  int64
		number         int32
		device, volume [64]byte
	}{start: start, length: length, number: 1}

	argument := struct {
		op, flags, size int32
		data            unsafe.Pointer
	}{op: addPartition, size: int32(unsafe.Sizeof(partition)), data: unsafe.Pointer(&partition)}

	device, err := os.OpenFile(disk, os.O_RDWR, 0)
	must(t, err)
	defer device.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&argument))); errno != 0 {
		t.Fatalf("add a partition to %s: %v", disk, errno)
	}
}
